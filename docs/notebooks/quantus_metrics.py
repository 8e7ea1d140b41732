# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
#   moreaugrad:
#     name: quantus_metrics
#     needs: [quantus]
# ---

# %% [markdown]
# # Evaluate with Quantus
#
# Quantus is a collection of metrics for explanations. `mg.quantus_explain` hands it any method of this package, and of
# Captum, as the function that its metrics ask for. This notebook judges six kinds of maps by five metrics, keeps a
# random map as a control, and looks at what such a table can and cannot say.
#
# Quantus is not installed with this package (`pip install quantus`).

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

import moreaugrad as mg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own, while it is imported
    import quantus

warnings.filterwarnings("ignore", "IProgress not found")  # other libraries look for ipywidgets
plt.rcParams["figure.dpi"] = 80
SIDE, LABELS = 32, ("disc", "square", "triangle")

# %% [markdown]
# ## A task with a known answer
#
# Some metrics need the truth: which pixels ought to matter. So the pictures are shapes on a noisy ground, and the truth
# is the shape with a margin of two pixels, in which the network can see its outline.


# %%
def make_pictures(count, seed):
    """Pictures (N, 3, H, W) around zero, their classes (N), and masks of the shapes (N, 1, H, W)."""
    random = np.random.default_rng(seed)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    kinds = random.integers(3, size=count)
    pictures = np.empty((count, 3, SIDE, SIDE), dtype=np.float32)
    masks = np.empty((count, 1, SIDE, SIDE), dtype=np.float32)
    for i, kind in enumerate(kinds):
        down, across, radius = random.integers(9, 23), random.integers(9, 23), random.integers(6, 9)
        y, x = rows - down, columns - across

        def inside(margin, kind=kind, x=x, y=y, radius=radius):
            size = radius + margin
            if kind == 0:
                return y**2 + x**2 <= size**2
            if kind == 1:
                return np.maximum(abs(y), abs(x)) <= 0.89 * size
            return (y <= 0.8 * size) & (2 * abs(x) <= y + 1.4 * size)

        ground = random.uniform(-0.2, 0.1, (3, 1, 1))
        pictures[i] = ground + 0.35 * inside(0) + 0.12 * random.normal(size=(3, SIDE, SIDE))
        masks[i] = inside(2)
    return torch.tensor(pictures), torch.tensor(kinds), torch.tensor(masks)


def make_block(before, after):
    return nn.Conv2d(before, after, 3, 2, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()


pictures, kinds, _ = make_pictures(2000, seed=0)
torch.manual_seed(0)
net = nn.Sequential(
    *(*make_block(3, 16), *make_block(16, 32), *make_block(32, 48)),
    *(nn.Flatten(), nn.Linear(16 * 48, len(LABELS))),
)
optimizer = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=1e-2)
for _ in range(8):
    for some in torch.randperm(len(pictures)).split(64):
        loss = nn.functional.cross_entropy(net(pictures[some]), kinds[some])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
net.eval().requires_grad_(False)

x, y, masks = make_pictures(200, seed=1)
right = net(x).argmax(1) == y
print(f"right on new pictures: {right.float().mean():.0%}")
x, y, masks = (each[right][:16] for each in (x, y, masks))

# %% [markdown]
# ## Maps for Quantus
#
# `quantus_explain` takes the name of a method, a class, or anything that makes an object with `attribute`, with its
# options. What comes back is a function of a model, inputs and targets, which returns arrays. The control is a map of
# random numbers that has never seen the network.


# %%
def draw_lots(model, x, target):
    return torch.rand_like(x)


METHODS = {
    "random": mg.quantus_explain(mg.from_function(draw_lots, random=True)),
    "gradient": mg.quantus_explain("gradient"),
    "integrated gradients": mg.quantus_explain("integrated_gradients", steps=32),
    "SmoothGrad": mg.quantus_explain("smoothgrad", noise_level=0.1, samples=64),
    "sparse MoreauGrad": mg.quantus_explain("sparse_moreau", sparsity=0.1, rho=0.1, budget=64),
    "in groups": mg.quantus_explain("group_sparse_moreau", sparsity=0.15, groups=8, rho=0.1, budget=64),
}
maps = {name: explain(model=net, inputs=x.numpy(), targets=y.numpy()) for name, explain in METHODS.items()}

fig, places = plt.subplots(2, 4, figsize=(7, 3.8), layout="constrained")
places[0, 0].imshow((x[0] + 0.5).clamp(0, 1).permute(1, 2, 0).numpy())
places[0, 0].set_title(LABELS[y[0]], fontsize=9)
places[1, 0].imshow(masks[0, 0].numpy(), cmap="gray")
places[1, 0].set_title("truth", fontsize=9)
for place, (name, found) in zip(places[:, 1:].flat, maps.items(), strict=True):
    place.imshow(found[0].sum(0), cmap="inferno")
    place.set_title(name, fontsize=9)
for place in places.flat:
    place.set_axis_off()
plt.show()

# %% [markdown]
# ## Five questions
#
# | metric | question | better |
# |---|---|---|
# | `PixelFlipping` | how long does the score last, while pixels are removed, the largest of the map first? | lower |
# | `RelevanceMassAccuracy` | which share of the map is in the truth? | higher |
# | `RandomLogit` | how alike is the map of another class? | lower |
# | `MaxSensitivity` | how far does a little noise in the picture move the map? | lower |
# | `Sparseness` | in how few pixels is the map? | higher |

# %%
METRICS = {
    "PixelFlipping": quantus.PixelFlipping(features_in_step=32, perturb_baseline="mean", disable_warnings=True),
    "RelevanceMassAccuracy": quantus.RelevanceMassAccuracy(abs=True, disable_warnings=True),
    "RandomLogit": quantus.RandomLogit(num_classes=len(LABELS), disable_warnings=True),
    "MaxSensitivity": quantus.MaxSensitivity(nr_samples=5, lower_bound=0.05, disable_warnings=True),
    "Sparseness": quantus.Sparseness(disable_warnings=True),
}
HIGHER = ("RelevanceMassAccuracy", "Sparseness")

np.random.seed(0)  # noqa: NPY002 - Quantus draws from the global state
table = np.empty((len(METHODS), len(METRICS)))
print(" " * 22 + "".join(f"{name[:14]:>16}" for name in METRICS))
for row, (name, explain) in zip(table, METHODS.items(), strict=True):
    for column, metric in enumerate(METRICS.values()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own
            found = metric(
                model=net,
                x_batch=x.numpy(),
                y_batch=y.numpy(),
                s_batch=masks.numpy().astype(bool),
                explain_func=explain,
                softmax=True,
                device="cpu",
            )
        row[column] = np.mean(found)  # over the pictures; of PixelFlipping also over the steps
    print(f"{name:22}" + "".join(f"{value:16.2f}" for value in row))

# %%
fig, places = plt.subplots(1, len(METRICS), figsize=(9, 2.2), sharey=True, layout="constrained")
for place, name, values in zip(places, METRICS, table.T, strict=True):
    best = values[1:].argmax() if name in HIGHER else values[1:].argmin()
    colours = ["0.75"] + ["tab:green" if i == best else "tab:blue" for i in range(len(values) - 1)]
    place.barh(list(METHODS), values, color=colours)
    place.set_title(f"{name}\n({'higher' if name in HIGHER else 'lower'} is better)", fontsize=8)
    place.tick_params(labelsize=8)
    place.spines[["top", "right"]].set_visible(False)
places[0].invert_yaxis()
plt.show()

# %% [markdown]
# ## How to read it
#
# Green is the best real map in each column, grey the control.
#
# - **No row wins.** Which map is best depends on the question, so ask the question that matters to you before you look
#   at the table.
# - **The control tells which metrics mean something.** A random map with a fixed seed is perfectly steady:
#   `MaxSensitivity` gives it the best mark of all. Steadiness alone is no merit.
# - **Sparseness is a choice, not a discovery.** `sparsity=0.1` was asked for. It also helps in `RelevanceMassAccuracy`,
#   since small entries outside the shape are gone; the price, if there is one, is in `PixelFlipping`, where a sparse
#   map ranks few pixels and leaves the others in no order.
# - **The truth is ours, not that of the network.** A network may rightly look at the ground beside a shape, to see
#   where it ends.
# - **Differences need their noise.** These are means of few pictures. Before you call one method better, look at how
#   much the pictures differ:

# %%
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    call = {"model": net, "x_batch": x.numpy(), "y_batch": y.numpy(), "s_batch": masks.numpy().astype(bool)}
    pair = [
        np.array(METRICS["RelevanceMassAccuracy"](**call, explain_func=METHODS[name], device="cpu"))
        for name in ("SmoothGrad", "sparse MoreauGrad")
    ]
gain = pair[1] - pair[0]
print(f"mean gain {gain.mean():.2f}, standard error {gain.std(ddof=1) / len(gain) ** 0.5:.2f}")
print(f"better on {(gain > 0).sum()} of {len(gain)} pictures")

# %% [markdown]
# ## The same without Quantus
#
# The package has metrics of its own, as functions of plain tensors. Where both have one they agree: the sparseness of
# Quantus is `mg.gini`.

# %%
found = torch.as_tensor(maps["sparse MoreauGrad"])
print(f"Quantus {table[list(METHODS).index('sparse MoreauGrad'), list(METRICS).index('Sparseness')]:.4f}")
print(f"mg.gini {mg.gini(found).mean():.4f}")
print("of the package:", ", ".join(mg.METRICS))

# %% [markdown]
# ## Where to go next
#
# - [Other libraries](../interop.md): Captum, Quantus, Lightning and others.
# - [Robustness](../robustness.md): metrics of the package, and studies that compare methods on equal terms.
# - [Which method when](../choose.md).
# - [What is known](../known.md) about a map.
