"""Sparse and robust saliency maps: MoreauGrad and the methods it is compared with.

The public names are those of `__init__.pyi`; each is imported when it is first used, so `import moreaugrad` costs
nothing and touches neither the GPU nor any random state.
"""

import warnings
from importlib.metadata import version
from typing import Any

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = version("moreaugrad")

_RENAMED = {  # old name -> new; the old ones go in 0.3
    "Attacked": "AttackResult",
    "Labelled": "LabelledImages",
    "Slope": "Implicit",
    "Smoothness": "LipschitzBounds",
    "Tensors": "TensorSource",
    "smoothness": "lipschitz_bounds",
    "strongest": "strongest_attack",
}


def __getattr__(name: str) -> Any:
    if name not in _RENAMED:
        return _load(name)
    new = _RENAMED[name]
    warnings.warn(f"mg.{name} is now mg.{new}; the old name goes in 0.3", DeprecationWarning, stacklevel=2)
    return _old_slope if name == "Slope" else _load(new)


def _old_slope(mode: str = "implicit", *sizes: Any, **options: Any) -> Any:
    """Slope(mode, ...), which is now a class per mode."""
    from moreaugrad.envelope.derivative import DERIVATIVES, parse_derivative

    parse_derivative(mode)  # refuses an unknown one
    return DERIVATIVES[mode](*sizes, **options)
