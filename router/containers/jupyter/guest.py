"""What a kernel executes for the router itself: it works on the files of a container.

``ARGS`` is what is asked for; the answer is printed as JSON. It runs beside the client's code and
knows no more than that does.
"""

# mypy: ignore-errors
# ruff: noqa: F821, PLC0415

import base64
import json
import os
import shutil
import stat
import tempfile

MOST_LISTED = 1000
UPLOAD = ".pointsman-upload-"


def do_open(memory):
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, ValueError):
        pass
    folder = tempfile.mkdtemp(prefix="pointsman-")
    os.chdir(folder)
    return {"folder": folder}


def do_list(folder):
    found = []
    for inside, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(inside, name)
            told = os.lstat(path)
            shown = os.path.relpath(path, folder)
            if stat.S_ISREG(told.st_mode) and not name.startswith(UPLOAD) and shown.isprintable():
                found.append([shown, told.st_size, int(told.st_mtime)])
        if len(found) >= MOST_LISTED:
            break
    return {"files": found[:MOST_LISTED]}


def do_read(folder, path, offset, size):
    number = os.open(os.path.join(folder, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            return {"error": "it is not a file"}
        return {"data": base64.b64encode(os.pread(number, size, offset)).decode()}
    finally:
        os.close(number)


def do_write(folder, path, upload, data, last):
    place = os.path.join(folder, UPLOAD + upload)
    number = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with os.fdopen(number, "ab") as file:
        file.write(base64.b64decode(data))
    if last:
        os.replace(place, os.path.join(folder, path))
    return {}


def do_delete(folder, path):
    os.unlink(os.path.join(folder, path))
    return {}


def do_end(folder):
    shutil.rmtree(folder, ignore_errors=True)
    return {}


def answered():
    try:
        return globals()["do_" + ARGS.pop("do")](**ARGS)
    except OSError as error:
        return {"error": error.strerror or "it failed"}


print(json.dumps(answered()))
