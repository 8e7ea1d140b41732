"""The JSON API in the words of OpenAPI 3.1."""

from __future__ import annotations

from typing import Any

from moreaugrad.app.models import MOST_CELLS, OPTIONS
from moreaugrad.app.photos import MOST_BYTES, MOST_PIXELS
from moreaugrad.methods import METHODS, PRESETS, QUALITY
from moreaugrad.model import STATISTICS

_ERROR = {"$ref": "#/components/schemas/Error"}
_JOB_ID = {"name": "key", "in": "path", "required": True, "schema": {"type": "string"}, "description": "id of a job"}
_PHOTO_ID = _JOB_ID | {"description": "id of a photo"}


def describe_api(version: str) -> dict[str, Any]:
    """The whole description, for /api/openapi.json."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "moreaugrad",
            "version": version,
            "description": "Saliency maps of photos: send a photo, ask for a job, follow its events, fetch its files. "
            "Where the server has a token, send it as `Authorization: Bearer TOKEN`.",
        },
        "paths": {
            "/api/about": {"get": _get("What the server offers: models, methods, qualities, examples, limits.")},
            "/api/openapi.json": {"get": _get("This description.")},
            "/api/models/{name}/classes": {
                "get": _get(
                    "Names of the classes, by number; null where they have none.",
                    [_JOB_ID | {"name": "name", "description": "a model of /api/about"}],
                )
            },
            "/api/photos": {
                "post": {
                    "summary": f"Send a photo: at most {MOST_BYTES // 10**6} MB and {MOST_PIXELS // 10**6} megapixels.",
                    "requestBody": {
                        "required": True,
                        "content": {
                            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
                            "multipart/form-data": {
                                "schema": {
                                    "type": "object",
                                    "properties": {"photo": {"type": "string", "format": "binary"}},
                                }
                            },
                        },
                    },
                    "responses": _answers("201", {"$ref": "#/components/schemas/Photo"}, "403", "408", "413", "422"),
                }
            },
            "/api/photos/{key}/crop": {
                "get": _get("What a network sees of the photo.", [_PHOTO_ID, _query("model")], "image/png")
            },
            "/api/photos/{key}/thumbnail": {"get": _get("A small picture.", [_PHOTO_ID], "image/jpeg")},
            "/api/jobs": {
                "post": {
                    "summary": "Ask for a map, an attack or a certificate.",
                    "requestBody": {
                        "required": True,
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Job"}}},
                    },
                    "responses": _answers(
                        "201", {"$ref": "#/components/schemas/Id"}, "403", "404", "413", "422", "503"
                    ),
                }
            },
            "/api/jobs/{key}": {
                "get": _get("The state of a job, and its result when it is done.", [_JOB_ID]),
                "delete": {
                    "summary": "Stop a job.",
                    "parameters": [_JOB_ID],
                    "responses": {"204": {"description": "It stops."}, "404": _answer(_ERROR)},
                },
            },
            "/api/jobs/{key}/events": {
                "get": _get(
                    "Server-sent events: waiting, classes, progress, preview, and at last done, failed or stopped. A "
                    "job whose events nobody reads any more stops.",
                    [_JOB_ID],
                    "text/event-stream",
                )
            },
            "/api/jobs/{key}/{name}": {
                "get": _get(
                    "A file of a result, by the address that `files` of the result has.",
                    [_JOB_ID, _JOB_ID | {"name": "name", "description": "map, map.npz, picture.png, result.json, ..."}],
                    "application/octet-stream",
                )
            },
        },
        "components": {"schemas": _schemas()},
    }


def _schemas() -> dict[str, Any]:
    text, number, whole = {"type": "string"}, {"type": "number"}, {"type": "integer"}
    options = {
        "preset": {"enum": list(PRESETS)},
        "quality": {"enum": list(QUALITY)},
        "sparsity": number | {"minimum": 0.0001, "maximum": 1, "description": "share of the map to keep"},
        "noise_level": number | {"minimum": 0, "maximum": 2, "description": "relative to the range of the photo"},
        "statistic": {"enum": list(STATISTICS)},
        "rho": number | {"minimum": 0, "maximum": 1000},
        "groups": {
            "anyOf": [whole | {"minimum": 1, "maximum": MOST_CELLS}, {"enum": ["superpixels", "channels"]}],
        },
        "seed": whole | {"minimum": 0},
    }
    assert set(options) == set(OPTIONS)
    attack = {"epsilon": number | {"default": 3.0}, "steps": whole | {"minimum": 1, "maximum": 50, "default": 5}}
    certify = {
        "sigma": number | {"default": 0.25},
        "samples": whole | {"minimum": 100, "maximum": 20_000, "default": 1000},
        "sparsity": number | {"default": 0.1},
    }
    return {
        "Error": _object({"error": text}, "error"),
        "Id": _object({"id": text}, "id"),
        "Photo": _object({"id": text, "width": whole, "height": whole}, "id", "width", "height"),
        "Job": _object(
            {
                "kind": {"enum": ["explain", "attack", "certify"], "default": "explain"},
                "photo": text | {"description": "id of a photo or of an example"},
                "model": text,
                "method": {"enum": [name for name, entry in METHODS.items() if "trained" not in entry.flags]},
                "target": {"type": ["integer", "null"], "description": "class number; null: the predicted class"},
                "options": _object(options),
                "attack": _object(attack),
                "certify": _object(certify),
            },
            "photo",
        ),
    }


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    found = {"type": "object", "properties": properties, "additionalProperties": False}
    return found | ({"required": list(required)} if required else {})


def _get(summary: str, parameters: list[Any] | None = None, kind: str = "application/json") -> dict[str, Any]:
    ok = {"description": "OK", "content": {kind: {}}}
    answers = {"200": ok} | ({"404": _answer(_ERROR)} if parameters else {})
    return {"summary": summary, "responses": answers} | ({"parameters": parameters} if parameters else {})


def _answers(status: str, schema: Any, *errors: str) -> dict[str, Any]:
    return {status: _answer(schema)} | {each: _answer(_ERROR) for each in ("400", *errors)}


def _answer(schema: Any) -> dict[str, Any]:
    return {"description": "An answer in JSON.", "content": {"application/json": {"schema": schema}}}


def _query(name: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": {"type": "string"}}
