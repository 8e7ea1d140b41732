"""An attack from outside the package."""

import moreaugrad as mg


@mg.register("attack", "flatten_map", flags={"map", "slope"})
class FlattenMap(mg.MapAttack):
    """Makes the largest entry of the map a small part of it."""

    def objective(self, maps, fixed):
        size = maps.abs().flatten(1)
        return size.amax(1) / size.sum(1)
