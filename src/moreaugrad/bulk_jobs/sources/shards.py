"""WebDataset: samples in tar files, indexed once and read by their places in the file."""

from __future__ import annotations

import logging
import re
import tarfile
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path, PurePosixPath

from moreaugrad.bulk_jobs.sources.files import common_parent
from moreaugrad.bulk_jobs.sources.listing import Item, Listing, as_class, as_text, digest, open_encoded
from moreaugrad.data.sources import STILL, as_path

log = logging.getLogger("moreaugrad")

_BRACES = re.compile(r"\{([^{}]*(?:,|\.\.)[^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_MEMBER = re.compile(r"((?:.*/)?[^/.]+)\.([^/]+)")  # the sample, and which part of it


@dataclass(eq=False, kw_only=True)
class ShardSource(Listing):
    """Images in uncompressed tar files; a key is "shard/sample".

    Args:
        shards: the tar files.
        places: shard, offset and size of each image, one after the other.
        truths: the class of each image.
    """

    shards: Sequence[str]
    places: Sequence[int]
    truths: Sequence[int | str | None]

    def read(self, row: int) -> Item:
        shard, offset, size = self.places[3 * row : 3 * row + 3]
        with Path(self.shards[shard]).open("rb") as handle:
            handle.seek(offset)
            content = handle.read(size)
        return Item(open_encoded(content, repr(self.keys[row])), truth=self.truths[row])


@dataclass(slots=True)
class _Sample:
    """What was found of one sample so far."""

    image: str = ""
    whole: bool = False  # the member is sample.jpg, not sample.something.jpg
    place: tuple[int, int] = (0, 0)
    truth: int | str | None = None


def open_shards(sources: Sequence[str | Path]) -> ShardSource:
    """Index tar files as WebDataset writes them.

    A sample is the members with one name up to the first dot. Its image is the member with an image ending, its true
    class the member `.cls`. Samples without an image are skipped, and counted in one warning.

    Args:
        sources: tar files, patterns with `*` or braces ("train-{000..009}.tar").

    Raises:
        ValueError: a file that is not there or no tar file, or a name that occurs twice in one.
    """
    shards = _find_shards(sources)
    keys: list[str] = []
    places: array[int] = array("q")
    truths: list[int | str | None] = []
    skipped = 0
    for number, (shard, name) in enumerate(zip(shards, _name_shards(shards), strict=True)):
        samples = _index(shard)
        images = {key: sample for key, sample in samples.items() if sample.image}
        skipped += len(samples) - len(images)
        keys += [f"{name}/{key}" for key in images]
        for sample in images.values():
            places.extend((number, *sample.place))
        truths += [sample.truth for sample in images.values()]
    if skipped:
        log.warning("%d sample%s of the shards skipped: no image in them", skipped, "" if skipped == 1 else "s")
    return ShardSource(
        kind="shards",
        path=str(shards[0] if len(shards) == 1 else common_parent(shards)),
        keys=as_text(keys),
        digest=digest(keys, places, truths),
        shards=list(map(str, shards)),
        places=places,
        truths=truths,
    )


def _index(shard: Path) -> dict[str, _Sample]:
    """The samples of a shard, in its order."""
    samples: dict[str, _Sample] = {}
    try:
        with tarfile.open(shard, "r:") as tar:
            while (member := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]  # it would keep them all
                parts = _MEMBER.fullmatch(member.name)
                if parts is None or not member.isreg() or member.issparse():
                    continue
                sample = samples.setdefault(parts[1], _Sample())
                if parts[2] == "cls":
                    handle = tar.extractfile(member)
                    sample.truth = as_class(handle.read().decode(errors="replace") if handle else None)
                else:
                    _take_image(sample, member, parts[2], shard)
    except (tarfile.TarError, OSError) as error:
        raise ValueError(
            f"a shard must be a whole, uncompressed tar file, got {str(shard)!r}: {error}; fetch it again, or unpack "
            "what compressed it"
        ) from error
    return samples


def _take_image(sample: _Sample, member: tarfile.TarInfo, part: str, shard: Path) -> None:
    """Sample.jpg before sample.mask.png, and the first of several."""
    if member.name == sample.image:
        raise ValueError(
            f"names in a shard must be unique, got {member.name!r} twice in {str(shard)!r}; write the samples again "
            "under different names"
        )
    whole = f".{part.lower()}" in STILL
    if (whole and not sample.whole) or (not sample.image and PurePosixPath(part).suffix.lower() in STILL):
        sample.image, sample.whole, sample.place = member.name, whole, (member.offset_data, member.size)


def _find_shards(sources: Sequence[str | Path]) -> list[Path]:
    found: dict[Path, None] = {}
    for source in sources:
        each = as_path(source)
        for name in [str(each)] if each.exists() else expand_braces(str(each)):
            matches = sorted(glob(name, recursive=True)) if has_magic(name) and not Path(name).exists() else [name]  # noqa: PTH207
            found |= dict.fromkeys(Path(match).absolute() for match in matches)
    if not found:
        raise ValueError(
            f"a pattern of shards must match tar files, got {list(map(str, sources))} without any; check it"
        )
    if missing := [shard for shard in found if not shard.is_file()]:
        raise ValueError(
            f"all {len(found)} shards must be there, got {len(missing)} missing, the first {str(missing[0])!r}; check "
            "the pattern, or fetch them"
        )
    return list(found)


def _name_shards(shards: Sequence[Path]) -> list[str]:
    """Stems, or paths below the common parent where stems occur twice."""
    stems = [shard.stem for shard in shards]
    if len(set(stems)) == len(stems):
        return stems
    root = common_parent(shards)
    return [shard.relative_to(root).with_suffix("").as_posix() for shard in shards]


def expand_braces(pattern: str) -> list[str]:
    """Write out alternatives and ranges as a shell does.

    Args:
        pattern: a text with any number of "{a,b}" and "{000..009}".

    Returns:
        All texts that it stands for, in order.

    Example:
        >>> expand_braces("{train,val}-{08..10}.tar")[:4]
        ['train-08.tar', 'train-09.tar', 'train-10.tar', 'val-08.tar']
    """
    found = _BRACES.search(pattern)
    if found is None:
        return [pattern]
    options = found[1].split(",")
    if ends := _RANGE.fullmatch(found[1]):
        width = max((len(end) for end in ends.groups() if end.startswith("0")), default=1)
        options = [f"{number:0{width}}" for number in range(int(ends[1]), int(ends[2]) + 1)]
    return [
        pattern[: found.start()] + option + rest for option in options for rest in expand_braces(pattern[found.end() :])
    ]
