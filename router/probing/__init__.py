"""Finding out what an endpoint speaks, and what its models can do.

    endpoint        what it speaks and serves, for ``pointsman check``
    questions       what is asked of a model, and what an answer to it shows. Pure
    ollama          what Ollama tells of a model without being asked to answer. Pure
    capabilities    asking an endpoint, one model after another, for ``pointsman probe``
    configuration   the findings as YAML for the configuration. Pure

A feature that an endpoint refuses, or evidently ignores, is not there. One that it accepts is there
when the answer shows it; otherwise nothing is said of it, and a later refusal may still tell.
"""
