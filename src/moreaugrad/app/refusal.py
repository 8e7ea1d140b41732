"""What the server answers where a request cannot be served."""

from __future__ import annotations

from collections.abc import Mapping


class Refusal(Exception):
    """A request that is refused: the status of HTTP, and a sentence for people."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = dict(headers or {})
