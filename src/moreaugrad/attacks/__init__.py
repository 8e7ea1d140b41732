"""Attacks on maps and models. A new one is one file here and one line in `ATTACKS`.

Listing the table imports no torch; `ATTACKS[name](method, epsilon, **options)` makes an attack.
"""

from moreaugrad.registry import Entry, Table


def _entry(path: str, flags: str, summary: str) -> Entry:
    return Entry(f"moreaugrad.attacks.{path}", summary, frozenset(flags.split()))


# flags: what an attack changes while the rest stays ("map", "class" or "weights"), and "slope" where it needs a map
# with a derivative
ATTACKS = Table(
    "attack",
    topk=_entry("topk:TopK", "map slope", "takes saliency away from the most salient entries"),
    mass_centre=_entry("mass_centre:MassCentre", "map slope", "moves the centre of mass of the map"),
    region=_entry("region:Region", "map slope", "draws the map into a region of the attacker's choice"),
    noise=_entry("noise:RandomNoise", "map", "random noise, of exact length or relative to the range of the image"),
    manipulation=_entry("manipulation:Manipulation", "map slope", "makes the map look like any other, by Adam"),
    structured=_entry("structured:Structured", "class", "changes the class by changing few groups of entries (ADMM)"),
    pgd=_entry("pgd:Pgd", "class", "changes the class by projected gradient steps, away from it or to a goal"),
    patch=_entry("patch:Patch", "class slope", "a visible patch that forces a class and hides from the map of it"),
    model_fooling=_entry(
        "model_fooling:ModelFooling", "weights slope", "trains a copy of the weights whose maps are wrong"
    ),
)
