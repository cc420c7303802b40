"""A dialect that nobody speaks: telegrams. A test adds this folder to the router's, as it is.

A request is ``{"station", "wires": [[who, text], …], "live", "words"?}``. Its answer is a
telegram: lines ``WORD "text"``, then ``STOP`` with the tokens that were counted. Not live it is one
JSON object, ``{"text", "counted": [received, sent]}``.
"""
