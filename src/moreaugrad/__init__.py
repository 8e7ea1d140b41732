"""Sparse and robust saliency maps: MoreauGrad and the methods it is compared with.

The public names are those of `__init__.pyi`; each is imported when it is first used, so `import
moreaugrad` costs nothing and touches neither the GPU nor any random state.
"""

from importlib.metadata import version

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = version("moreaugrad")
