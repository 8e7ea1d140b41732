"""The routes of the page, of its files, and of the JSON API."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import metadata, version
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from moreaugrad.app.bodies import read_json, read_photo
from moreaugrad.app.first_map import run_once
from moreaugrad.app.guard import LOOPBACK, Application, Guard
from moreaugrad.app.jobs import MOST_WAITING, OVER, RUNNING, WAITING, Job, JobQueue
from moreaugrad.app.models import Menu, describe_methods
from moreaugrad.app.openapi import describe_api
from moreaugrad.app.photos import MOST_BYTES, MOST_PIXELS, PhotoStore, encode, make_thumbnail
from moreaugrad.app.refusal import Refusal
from moreaugrad.app.tasks import read_task
from moreaugrad.methods import PRESETS, QUALITY
from moreaugrad.model import STATISTICS

MOST_UPLOADS = 24  # at once, each of which takes twice its size in memory
LOOK, BEAT = 0.1, 0.4  # seconds between two looks at a job, and between two words that it is alive
FORGET = 60.0  # seconds between two looks for what is old
STATIC = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class Studio:
    """What the server has: networks, photos, and jobs.

    Args:
        menu: the networks.
        photos: the examples, and what visitors sent.
        read_only: whether visitors may look at examples only.
    """

    menu: Menu
    photos: PhotoStore = field(default_factory=PhotoStore)
    jobs: JobQueue = field(default_factory=JobQueue)
    read_only: bool = False

    def about(self) -> dict[str, Any]:
        """What the page offers."""
        examples = self.photos.examples.items()
        return {
            "version": version("moreaugrad"),
            "read_only": self.read_only,
            "models": self.menu.describe(),
            "methods": describe_methods(),
            "qualities": [{"name": name, "gradients": gradients} for name, gradients in QUALITY.items()],
            "statistics": [{"name": name, "summary": each.summary} for name, each in STATISTICS.items()],
            "presets": [{"name": name, "options": dict(options)} for name, options in PRESETS.items()],
            "examples": [
                {"id": key, "name": each.name, "width": each.width, "height": each.height} for key, each in examples
            ],
            "limits": {"bytes": MOST_BYTES, "pixels": MOST_PIXELS, "waiting": MOST_WAITING},
            "docs": find_docs(),
        }

    def warm_up(self) -> None:
        """Explain the first example, just as the page asks for it first."""
        first = next(iter(self.photos.examples))
        asked = {"photo": first, "options": {"quality": next(iter(QUALITY))}}
        task = read_task(asked, self.photos[first], self.menu)
        self.jobs.add(Job(partial(run_once, task), task.same))

    def start(self, body: Mapping[str, Any]) -> Job:
        """A job for a request, in the line."""
        photo = self.photos[body.get("photo")]
        if self.read_only and not photo.example:
            raise Refusal(403, "this server shows its own examples only")
        task = read_task(body, photo, self.menu)
        return self.jobs.add(Job(task.run, task.same))


@dataclass(frozen=True)
class Api:
    """What answers each address."""

    studio: Studio
    about: Mapping[str, Any]
    _uploads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_UPLOADS))

    def routes(self) -> list[Route]:
        return [
            Route("/", self.page),
            Route("/static/{name}", self.static),
            Route("/api/about", self.tell_about),
            Route("/api/openapi.json", self.openapi),
            Route("/api/models/{name:path}/classes", self.classes),
            Route("/api/photos", self.add_photo, methods=["POST"]),
            Route("/api/photos/{key}/crop", self.crop),
            Route("/api/photos/{key}/thumbnail", self.thumbnail),
            Route("/api/jobs", self.add_job, methods=["POST"]),
            Route("/api/jobs/{key}", self.show_job),
            Route("/api/jobs/{key}", self.stop_job, methods=["DELETE"]),
            Route("/api/jobs/{key}/events", self.events),
            Route("/api/jobs/{key}/{name}", self.result_file),
        ]

    async def page(self, request: Request) -> Response:
        return _read_static("page.html")

    async def static(self, request: Request) -> Response:
        return _read_static(request.path_params["name"])

    async def tell_about(self, request: Request) -> Response:
        return JSONResponse(self.about)

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(describe_api(version("moreaugrad")))

    async def classes(self, request: Request) -> Response:
        return JSONResponse({"classes": self.studio.menu[request.path_params["name"]].labels})

    async def add_photo(self, request: Request) -> Response:
        if self.studio.read_only:
            raise Refusal(403, "this server takes no photos; choose one of its examples")
        if self._uploads.locked():
            raise Refusal(
                503, f"at most {MOST_UPLOADS} photos may come in at once; try again later", {"Retry-After": "5"}
            )
        async with self._uploads:
            data = await read_photo(request)
        key, photo = await run_in_threadpool(self.studio.photos.add, data)
        return JSONResponse({"id": key, "width": photo.width, "height": photo.height}, 201)

    async def crop(self, request: Request) -> Response:
        photo = self.studio.photos[request.path_params["key"]]
        classifier = self.studio.menu[request.query_params.get("model")]
        return _picture(await run_in_threadpool(photo.use, lambda found: encode(classifier.crop(found))), "image/png")

    async def thumbnail(self, request: Request) -> Response:
        photo = self.studio.photos[request.path_params["key"]]
        return _picture(await run_in_threadpool(photo.use, make_thumbnail), "image/jpeg")

    async def add_job(self, request: Request) -> Response:
        body = await read_json(request)
        job = await run_in_threadpool(self.studio.start, body)
        return JSONResponse({"id": job.key}, 201)

    async def show_job(self, request: Request) -> Response:
        job = self._job(request)
        return JSONResponse({"state": job.state, "result": job.facts, "error": job.error})

    async def stop_job(self, request: Request) -> Response:
        self.studio.jobs.stop(self._job(request))
        return Response(status_code=204)

    async def events(self, request: Request) -> Response:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        news = tell_news(self.studio.jobs, self._job(request), request)
        return StreamingResponse(news, media_type="text/event-stream", headers=headers)

    async def result_file(self, request: Request) -> Response:
        job, name = self._job(request), request.path_params["name"]
        found = {} if job.result is None else {file.name: file for file in job.result.files.values()}
        if name not in found:
            raise Refusal(404, "the job has no such file")
        content = await run_in_threadpool(found[name].make)
        headers = {"Cache-Control": "private, max-age=3600"}
        if "." in name:
            headers["Content-Disposition"] = f'attachment; filename="{name}"'
        return Response(content, media_type=found[name].kind, headers=headers)

    def _job(self, request: Request) -> Job:
        return self.studio.jobs[request.path_params["key"]]


def make_app(
    studio: Studio, hosts: tuple[str, ...] = LOOPBACK, token: str | None = None, any_address: bool = False
) -> Application:
    """The whole application, guarded."""

    async def forget() -> None:
        while True:
            await asyncio.sleep(FORGET)
            studio.photos.forget()
            studio.jobs.forget()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        forgetting = asyncio.create_task(forget())
        yield
        forgetting.cancel()
        studio.jobs.close()

    handlers: Any = {Refusal: _refuse, HTTPException: _refuse_http, Exception: _fail}
    routes = Api(studio, studio.about()).routes()
    return Guard(Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan), hosts, token, any_address)


def find_docs() -> str | None:
    """The address of the documentation, if the installed package names one."""
    links = (each.partition(", ") for each in metadata("moreaugrad").get_all("Project-URL", []))
    return next((address for name, _, address in links if name == "Documentation"), None)


async def tell_news(jobs: JobQueue, job: Job, request: Request) -> AsyncIterator[str]:
    """Server-sent events until the job is over; when the last listener leaves before, it stops."""
    seen, said = 0, time.monotonic()
    job.listeners += 1
    try:
        while not jobs.closing:
            over = job.state in OVER
            fresh, now = job.news_after(seen), time.monotonic()
            seen = fresh[-1][0] if fresh else seen
            news = [(name, data) for _, name, data in fresh]
            if job.state == WAITING and (now - said >= BEAT or not seen):
                news.append(("waiting", {"ahead": jobs.ahead(job)}))
            elif job.state == RUNNING and not news and now - said >= BEAT:
                step = job.progress | {"seconds": round(now - job.began, 2)}
                news.append(("progress", step))
            for name, data in news:
                said = now
                yield f"event: {name}\ndata: {json.dumps(data)}\n\n"
            if over:
                return
            if await request.is_disconnected():
                return
            await asyncio.sleep(LOOK)
    finally:
        job.listeners -= 1
        if job.state not in OVER and job.listeners == 0:
            jobs.stop(job)


def _read_static(name: str) -> Response:
    """A file of the page, by its name alone."""
    there = {each.name: each for each in (files("moreaugrad.app") / "static").iterdir()}
    kind = STATIC.get(Path(name).suffix)
    if kind is None or name not in there:
        raise Refusal(404, "there is no such file")
    return Response(there[name].read_bytes(), media_type=kind, headers={"Cache-Control": "no-cache"})


def _picture(content: bytes, kind: str) -> Response:
    return Response(content, media_type=kind, headers={"Cache-Control": "private, no-cache"})  # models may change


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return JSONResponse({"error": str(error)}, error.status, error.headers)


async def _refuse_http(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    words = {404: "there is nothing at this address", 405: "this address does not take that method"}
    return JSONResponse({"error": words.get(status, "the request cannot be served")}, status)


async def _fail(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "something went wrong in the server; its terminal says more"}, 500)
