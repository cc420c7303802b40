"""Read the settings from one YAML file and the environment, and report every mistake at once.

    pointsman.yaml:12: endpoints[0].weight: must be greater than 0

Values may refer to environment variables: ``${NAME}``, ``${NAME:-default}`` (the default also
stands in for an empty variable), ``$${`` for a literal ``${``. References are resolved in values
that YAML has already cut out, so that a variable can change a value, never the structure.

A variable like ``POINTSMAN_SERVER__PORT`` overrides one field: two underscores step into a
section; a list (``POINTSMAN_ENDPOINTS``) is given as a whole, in YAML or JSON.

No message contains a value: it could be a secret.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from router.settings.document import Mistake, Place, SettingsDocument, SettingsError
from router.settings.schema import Settings
from router.settings.values import UNIQUE_IN_ENDPOINTS, UNIQUE_IN_KEYS, repetitions
from router.settings.words import did_you_mean, in_words

__all__ = ["Mistake", "SettingsError", "load_settings", "parse_settings"]

_PREFIX = "POINTSMAN_"
_OTHERS = frozenset({"POINTSMAN_API_KEY", "POINTSMAN_DATA_DIR", "POINTSMAN_URL"})
"""Variables that are read elsewhere: where ``pointsman embedder install`` keeps what it makes, and
which router ``pointsman launch`` points an agent at.
"""

# What Kubernetes sets in every pod beside a service that is called "pointsman".
_SERVICE_LINK = re.compile(
    r"POINTSMAN_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_[A-Z]+)?)"
)
_UNIQUE = {("endpoints",): UNIQUE_IN_ENDPOINTS, ("auth", "keys"): UNIQUE_IN_KEYS}


def load_settings(path: Path, environ: Mapping[str, str]) -> Settings:
    """Read ``path`` (UTF-8 YAML); raises ``SettingsError``, also when it cannot be read."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as exc:
        message = f"cannot be read: {exc.strerror or type(exc).__name__}"
        raise SettingsError([Mistake("", None, message, str(path))]) from None
    except UnicodeDecodeError as exc:
        line = exc.object.count(b"\n", 0, exc.start) + 1
        raise SettingsError([Mistake("", line, "is not UTF-8", str(path))]) from None
    return parse_settings(text, source=str(path), environ=environ)


def parse_settings(text: str, *, source: str, environ: Mapping[str, str]) -> Settings:
    """The settings of the YAML ``text``; ``source`` names it in messages.

    Raises ``SettingsError`` with every mistake found.
    """
    document = SettingsDocument(source, environ)
    document.read(text)
    if not isinstance(document.data, dict):
        document.report((), "must be a mapping with the keys " + ", ".join(Settings.model_fields))
        raise SettingsError(document.mistakes)
    _override(document, environ)
    settings = _validate(document)
    if settings is None or document.mistakes:
        raise SettingsError(document.mistakes)
    return settings


def _override(document: SettingsDocument, environ: Mapping[str, str]) -> None:
    """Lay the ``POINTSMAN_`` variables over the file's data."""
    known = dict(_variables(Settings, ()))
    for name, text in sorted(environ.items()):
        if name in known:
            place, is_list = known[name]
            document.variables[place] = name
            document.broken.discard(place)
            value = _list_of(name, text, place, document) if is_list else text
            _put(document.data, place, value)
        elif name in _OTHERS:
            continue
        elif name.startswith(_PREFIX) and not _is_service_link(name, text):
            message = "names no setting" + did_you_mean(name.upper(), known)
            document.mistakes.append(Mistake("", None, message, name))


def _list_of(name: str, text: str, place: Place, document: SettingsDocument) -> Any:
    given = SettingsDocument(name, None)
    try:
        given.read(text, place)
    except SettingsError as exc:
        document.mistakes += exc.mistakes
        document.broken.add(place)
    document.mistakes += given.mistakes
    document.broken |= given.broken
    return given.data


def _variables(model: type[BaseModel], above: Place) -> Iterator[tuple[str, tuple[Place, bool]]]:
    """Each variable with the field it sets and whether that is a list."""
    for name, info in model.model_fields.items():
        place = (*above, name)
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from _variables(info.annotation, place)
        else:
            variable = _PREFIX + "__".join(str(step).upper() for step in place)
            yield variable, (place, get_origin(info.annotation) is tuple)


def _is_service_link(name: str, text: str) -> bool:
    # POINTSMAN_PORT is one only with an address in it: else somebody meant server.port.
    return bool(_SERVICE_LINK.fullmatch(name)) or (name.endswith("_PORT") and "://" in text)


def _put(data: dict[str, Any], place: Place, value: Any) -> None:
    *sections, last = (str(step) for step in place)
    target: Any = data
    for section in sections:
        if target.get(section) is None:
            target[section] = {}
        target = target[section]
        if not isinstance(target, dict):
            return  # validation reports the section itself
    target[last] = value


def _validate(document: SettingsDocument) -> Settings | None:
    try:
        settings = Settings.model_validate(document.data)
    except ValidationError as exc:
        errors = exc.errors(include_input=False, include_url=False)
    else:
        _check_ca_files(settings, document)
        return settings
    faults = [_explained(error["loc"], error) for error in errors]
    # The schema looks for repetitions only where everything else is right.
    for place, unique in _UNIQUE.items():
        found = repetitions(_mappings_at(document.data, place), unique)
        faults += [((*place, *where), message) for where, message in found]
    for where, message in dict(faults).items():
        if not any(where[: len(broken)] == broken for broken in document.broken):
            document.report(where, message)
    return None


def _explained(loc: Place, error: Mapping[str, Any]) -> tuple[Place, str]:
    place = tuple(step for step in loc if step != "[key]")
    if error["type"] == "extra_forbidden":
        fields = _fields_at(place[:-1])
        return place, "unknown key" + (
            did_you_mean(str(place[-1]), fields) or f"; known here are {', '.join(fields)}"
        )
    return place, in_words(error)


def _mappings_at(data: Any, place: tuple[str, ...]) -> list[dict[str, Any]]:
    for step in place:
        data = data.get(step) if isinstance(data, dict) else None
    items = data if isinstance(data, list) else []
    return [item if isinstance(item, dict) else {} for item in items]


def _fields_at(place: Place) -> list[str]:
    """The keys that the schema knows at ``place``."""
    model: type[BaseModel] = Settings
    is_key = False  # of a mapping, such as the models of ``capabilities``
    for step in place:
        if is_key or isinstance(step, int):
            is_key = False
            continue
        annotation = model.model_fields[step].annotation
        is_key = get_origin(annotation) is dict
        candidates = [annotation, *get_args(annotation)]
        candidates += [get_args(c)[0] for c in candidates if get_origin(c) is Annotated]
        model = next(c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel))
    return list(model.model_fields)


def _check_ca_files(settings: Settings, document: SettingsDocument) -> None:
    for index, endpoint in enumerate(settings.endpoints):
        if endpoint.tls.ca_file is None:
            continue
        place = ("endpoints", index, "tls", "ca_file")
        try:
            ssl.create_default_context(cafile=endpoint.tls.ca_file)
        except ssl.SSLError:
            document.report(place, "is a file without a PEM certificate")
        except OSError as exc:
            hint = "a relative path starts at the working directory"
            document.report(place, f"cannot be read: {exc.strerror} ({hint})")
