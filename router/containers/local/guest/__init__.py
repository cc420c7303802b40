"""What runs in a sandbox: a supervisor, and under it the interpreter that has the client's code.

It is handed to a Python of the operator's, which need not be the router's own: nothing but the
standard library and one another is imported, of any Python from 3.8 on. So imports are relative.
"""
