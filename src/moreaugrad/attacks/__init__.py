"""Attacks on maps and models. A new one is one file here and one line in `ATTACKS`.

Listing the table imports no torch; `ATTACKS[name](method, epsilon, **options)` makes an attack.
"""

from moreaugrad.registry import Entry, Table

_MAP = frozenset({"map", "slope"})  # changes the map and keeps the prediction; needs a map with a derivative
_CLASS = frozenset({"class"})  # changes the prediction
ATTACKS = Table(
    "attack",
    topk=Entry(
        "moreaugrad.attacks.topk:TopK",
        "takes saliency away from the most salient entries, by gradient or sign steps, l2 or linf",
        _MAP,
    ),
    mass_centre=Entry(
        "moreaugrad.attacks.mass_centre:MassCentre",
        "moves the centre of mass of the map as far as possible",
        _MAP,
    ),
    region=Entry(
        "moreaugrad.attacks.region:Region",
        "draws the map into a region of the attacker's choice",
        _MAP,
    ),
    noise=Entry(
        "moreaugrad.attacks.noise:RandomNoise",
        "random noise: relative to the image's range, or of exact length, redrawn until the prediction is kept",
        frozenset({"map"}),
    ),
    manipulation=Entry(
        "moreaugrad.attacks.manipulation:Manipulation",
        "makes the map look like any other while the output stays, by Adam",
        _MAP,
    ),
    structured=Entry(
        "moreaugrad.attacks.structured:Structured",
        "the smallest change of the class that touches few groups of entries (ADMM)",
        _CLASS,
    ),
    pgd=Entry(
        "moreaugrad.attacks.pgd:Pgd",
        "changes the class by projected gradient steps, linf or l2, away from it or to a goal",
        _CLASS,
    ),
    patch=Entry(
        "moreaugrad.attacks.patch:Patch",
        "visible patch that forces a class and hides from that class's map; the plain patch beside it",
        frozenset({"class", "slope"}),
    ),
    model_fooling=Entry(
        "moreaugrad.attacks.model_fooling:ModelFooling",
        "trains a copy of the weights whose maps are wrong and whose accuracy holds; no input changes",
        frozenset({"weights", "slope"}),
    ),
)
