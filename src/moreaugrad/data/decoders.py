"""What the decoders of images have to say: they warn about damage, which readers report by themselves."""

from __future__ import annotations

from contextlib import AbstractContextManager

from moreaugrad.threads import ignore_warnings


def silence_decoders() -> AbstractContextManager[None]:
    """Drop Pillow's warnings meanwhile."""
    return ignore_warnings(Warning, module=r"PIL\b")
