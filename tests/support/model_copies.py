"""Changed copies of a network, for other libraries that need activations out of place and called once each."""

import copy
from collections import Counter

from torch import fx


def out_of_place(model):
    """A copy whose activations leave their input alone, as hooks need it."""
    changed = copy.deepcopy(model)
    for module in changed.modules():
        if getattr(module, "inplace", False):
            module.inplace = False
    return changed


def unshared(model):
    """A copy in which no activation module is called twice: each call has a module of its own."""
    traced = fx.symbolic_trace(out_of_place(model))
    calls = Counter(node.target for node in traced.graph.nodes if node.op == "call_module")
    for node in traced.graph.nodes:
        if node.op == "call_module" and calls[node.target] > 1:
            module = traced.get_submodule(node.target)
            if not list(module.parameters()):
                calls[node.target] -= 1
                node.target = f"{node.target}_{calls[node.target]}"
                traced.add_submodule(node.target, copy.deepcopy(module))
    traced.recompile()
    return traced.train(model.training)
