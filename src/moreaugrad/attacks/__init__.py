"""Attacks on maps and models. A new one is one file here and one line in `ATTACKS`.

Listing the table imports no torch; `ATTACKS[name](method, epsilon, **options)` makes an attack.
"""

from moreaugrad.registry import Entry, Table


def _entry(path: str, summary: str, *flags: str) -> Entry:
    return Entry(f"moreaugrad.attacks.{path}", summary, frozenset(flags))


# flags: what an attack changes while the rest stays ("map", "class" or "weights"), and "slope" where it needs a map
# with a derivative
ATTACKS = Table(
    "attack",
    topk=_entry(
        "topk:TopK",
        "takes saliency away from the most salient entries, by gradient or sign steps, l2 or linf",
        "map",
        "slope",
    ),
    mass_centre=_entry(
        "mass_centre:MassCentre", "moves the centre of mass of the map as far as possible", "map", "slope"
    ),
    region=_entry("region:Region", "draws the map into a region of the attacker's choice", "map", "slope"),
    noise=_entry(
        "noise:RandomNoise",
        "random noise: relative to the image's range, or of exact length, redrawn until the prediction is kept",
        "map",
    ),
    manipulation=_entry(
        "manipulation:Manipulation", "makes the map look like any other while the output stays, by Adam", "map", "slope"
    ),
    structured=_entry(
        "structured:Structured", "the smallest change of the class that touches few groups of entries (ADMM)", "class"
    ),
    pgd=_entry(
        "pgd:Pgd", "changes the class by projected gradient steps, linf or l2, away from it or to a goal", "class"
    ),
    patch=_entry(
        "patch:Patch",
        "visible patch that forces a class and hides from that class's map; the plain patch beside it",
        "class",
        "slope",
    ),
    model_fooling=_entry(
        "model_fooling:ModelFooling",
        "trains a copy of the weights whose maps are wrong and whose accuracy holds; no input changes",
        "weights",
        "slope",
    ),
)
