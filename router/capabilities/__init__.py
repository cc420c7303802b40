"""Finding out what the models of an endpoint can do, for ``pointsman probe``.

    questions   what is asked, and what an answer to it shows. Pure
    ollama      what Ollama tells of a model without being asked to answer. Pure
    probe       asking an endpoint, one model after another
    block       the findings as YAML for the configuration. Pure

A feature that an endpoint refuses, or evidently ignores, is not there. One that it accepts is there
when the answer shows it; otherwise nothing is said of it, and a later refusal may still tell.
"""
