"""llama.cpp's server: as it starts, and in router mode as far as it lists and loads models."""

from __future__ import annotations

from tests.support.speech import SPEECH
from tests.support.upstream import Script, Upstream, Wire, by_path, json_answer, whole

__all__ = ["LlamaCpp", "Starting"]


class LlamaCpp(Upstream):
    """``status`` is each model's; a load stays ``loading`` until the test ends it.

    ``loads`` are the models that were asked for, in their order.
    """

    def __init__(self, *models: str) -> None:
        loads = {"/models/load": self._load, "/models/unload": self._unload}
        lists = {"/models": self._list, "/v1/models": self._list}
        super().__init__(default=by_path(loads), on_get=by_path(lists))
        self.status = dict.fromkeys(models, "unloaded")
        self.loads: list[str] = []

    async def _list(self, wire: Wire) -> None:
        data = [
            {
                "id": name,
                "object": "model",
                "owned_by": "llamacpp",
                "created": 0,
                "aliases": [],
                "status": {"value": status, "args": ["llama-server"]},
            }
            for name, status in self.status.items()
        ]
        await json_answer({"object": "list", "data": data})(wire)

    async def _load(self, wire: Wire) -> None:
        name = wire.request.json["model"]
        self.loads.append(name)
        script = json_answer({"success": True})
        if name not in self.status:
            script = _error(404, "model is not found")
        elif self.status[name] != "unloaded":
            script = _error(400, "model is already running")
        else:
            self.status[name] = "loading"
        await script(wire)

    async def _unload(self, wire: Wire) -> None:
        name = wire.request.json["model"]
        if self.status.get(name) != "loaded":
            await _error(400, "model is not running")(wire)
        else:
            self.status[name] = "unloaded"
            await json_answer({"success": True})(wire)


class Starting(Upstream):
    """llama.cpp with one model, ``m``: as long as ``loading`` it answers everything with 503.

    ``answered`` are the paths that it was asked for, with the status. With ``lists`` it lists its
    model even then.
    """

    def __init__(self, *, lists: bool = False) -> None:
        super().__init__(default=self._answer, on_get=self._answer)
        self.loading = True
        self.lists = lists
        self.answered: list[tuple[str, int]] = []

    def statuses(self, path: str) -> list[int]:
        """The statuses of the answers to requests for a path."""
        return [status for asked, status in self.answered if asked == path]

    async def _answer(self, wire: Wire) -> None:
        path = wire.request.path
        refuses = self.loading and not (self.lists and path == "/v1/models")
        self.answered.append((path, 503 if refuses else 200))
        if refuses:
            error = {"message": "Loading model", "type": "unavailable_error", "code": 503}
            await json_answer({"error": error}, 503)(wire)
        elif path == "/health":
            await json_answer({"status": "ok"})(wire)
        elif path == "/v1/models":
            entry = {"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx": 4096}}
            await json_answer({"object": "list", "data": [entry]})(wire)
        else:
            await whole(SPEECH["chat"].whole)(wire)


def _error(status: int, message: str) -> Script:
    return json_answer({"error": {"message": message, "code": status}}, status)
