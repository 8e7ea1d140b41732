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
# ---

# %% [markdown]
# # Attack your own explanation
#
# A change of the image that nobody sees can move a saliency map while the prediction stays. Before you rely on a map,
# attack it yourself. This notebook attacks five kinds of maps of one network, and judges by three rules:
#
# - **Fresh noise.** A map that was attacked on one seed is judged on another, which the attack has not seen.
# - **A floor.** Another seed alone moves a map too. Only what an attack adds to that is the work of the attack.
# - **The strongest attack counts.** A weak attack makes any map look robust.

# %%
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import skimage.data
import torch
from PIL import Image
from torch import nn

import moreaugrad as mg

warnings.filterwarnings("ignore", "IProgress not found")  # other libraries look for ipywidgets
plt.rcParams["figure.dpi"] = 80

# %% [markdown]
# ## A small network on real pixels
#
# To keep this short, the network is small and so is its task: from which of eight photos was this crop cut? The photos
# come with scikit-image. Colours are shuffled, so that the network has to look at textures and shapes. Softplus instead
# of ReLU makes the maps differentiable, so an attack needs no stand-in for the network.

# %%
FILES = ("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg", "retina.jpg", "ihc.png")
FILES += ("motorcycle_left.png", "hubble_deep_field.jpg")
NAMES = ("astronaut", "cat", "coffee", "rocket", "retina", "tissue", "motorcycle", "galaxies")
WIDTH, HEIGHT, SIDE = 160, 120, 32
MEAN, STD = 0.45, 0.25
BOX = ((0 - MEAN) / STD, (1 - MEAN) / STD)  # black and white, in the units of the network


def read_sheet(name):
    photo = Image.open(Path(skimage.data.__file__).parent / name).convert("RGB").resize((WIDTH, HEIGHT))
    return (torch.tensor(np.asarray(photo)).permute(2, 0, 1) / 255 - MEAN) / STD


sheets = [read_sheet(name) for name in FILES]


def cut(count, seed):
    """Random crops with shuffled colours, and the photos that they come from."""
    random = torch.Generator().manual_seed(seed)
    label = torch.randint(len(sheets), (count,), generator=random)
    left, top = (torch.randint(size - SIDE + 1, (count,), generator=random).tolist() for size in (WIDTH, HEIGHT))
    crops = []
    for k, s, t in zip(label.tolist(), left, top, strict=True):
        colours = torch.randperm(3, generator=random)
        crops.append(sheets[k][colours, t : t + SIDE, s : s + SIDE])
    return torch.stack(crops), label


def make_block(before, after, stride):
    return nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.Softplus(10)


torch.manual_seed(0)
net = nn.Sequential(
    *(*make_block(3, 8, 1), *make_block(8, 16, 2), *make_block(16, 16, 1), *make_block(16, 32, 2)),
    *(*make_block(32, 32, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, len(sheets))),
)
optimizer = torch.optim.Adam(net.parameters(), 3e-3)
for step in range(220):
    crops, label = cut(32, step)
    loss = nn.functional.cross_entropy(net(crops), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
net.eval().requires_grad_(False)

crops, label = cut(500, seed=1000)
right = net(crops).argmax(1) == label
print(f"right on new crops: {right.float().mean():.0%}")

# %% [markdown]
# Most crops are recognised. We attack the maps of six of them.

# %%
x, label = crops[right][:6], label[right][:6]


def draw(place, picture, title=""):
    place.imshow((picture * STD + MEAN).clamp(0, 1).permute(1, 2, 0).numpy())
    place.set_title(title, fontsize=9)
    place.set_axis_off()


fig, places = plt.subplots(1, len(x), figsize=(8, 1.6), layout="constrained")
for place, picture, k in zip(places, x, label.tolist(), strict=True):
    draw(place, picture, NAMES[k])
plt.show()

# %% [markdown]
# ## One attack on SmoothGrad
#
# `mg.TopK` looks for a change that takes saliency away from the entries that were the largest. `epsilon` is the length
# of the change, in the units of the network's input; black and white are four units apart. An attack whose point the
# network would classify otherwise does not count.

# %%
EPSILON, STEPS, BUDGET, JUDGED = 2.0, 4, 64, 160
method = mg.SmoothGrad(net, noise_level=0.1, samples=BUDGET)
found = mg.TopK(method, epsilon=EPSILON, steps=STEPS, box=BOX).perturb(x, label)
print(found)

# %%
judge = mg.SmoothGrad(net, noise_level=0.1, samples=JUDGED, seed=1)  # noise that the attack has not seen
before, after = judge.attribute(x, label), judge.attribute(found.x, label)

fig, places = plt.subplots(1, 5, figsize=(8, 1.9), layout="constrained")
draw(places[0], x[0], "crop")
draw(places[1], found.x[0], "attacked")
draw(places[2], (found.x[0] - x[0]) * 10, "change, ten times")
top = float(before[0].abs().sum(0).quantile(0.99))
for place, each, title in ((places[3], before, "its map"), (places[4], after, "map after the attack")):
    place.imshow(each[0].abs().sum(0).numpy(), cmap="inferno", vmin=0, vmax=top)
    place.set_title(title, fontsize=9)
    place.set_axis_off()
plt.show()

# %% [markdown]
# The two crops look nearly the same, and the network calls them the same. Their maps differ in what they stress.
#
# How far is that? `mg.normalised_distance` compares maps by direction: `0` for the same map, `1.41` for maps that have
# no entry in common. Three distances belong side by side:


# %%
def median_distance(one, other):
    return float(mg.normalised_distance(one, other).median())


own = median_distance(method.attribute(x, label), method.attribute(found.x, label))
other_seed = mg.SmoothGrad(net, noise_level=0.1, samples=JUDGED, seed=2)
print(f"on the noise that the attack knew  {own:.2f}")
print(f"on fresh noise                     {median_distance(before, after):.2f}")
print(f"another seed alone                 {median_distance(before, other_seed.attribute(x, label)):.2f}")

# %% [markdown]
# The last line is the floor. The attack did something if the second number is clearly above the third. Where the first
# is larger than the second, a part of the attack was fitted to one draw of the noise; nobody who computes the map anew
# will see that part.
#
# ## Five kinds of maps, at equal cost
#
# Now the same for MoreauGrad as published, for the preset "robust", and for sparse maps of both. Every map may spend as
# many gradients as the others, and every method is attacked along its own slope. Then it gets a second chance to lose:
# the points that were found against the other methods are tried on it too, and for each crop the stronger one counts.

# %%
KINDS = {
    "SmoothGrad": lambda budget, seed: mg.SmoothGrad(net, noise_level=0.1, samples=budget, seed=seed),
    "MoreauGrad, published": lambda budget, seed: mg.MoreauGrad(net, preset="published", budget=budget, seed=seed),
    "MoreauGrad, robust": lambda budget, seed: mg.MoreauGrad(net, preset="robust", budget=budget, seed=seed),
    "sparse, published": lambda budget, seed: mg.SparseMoreauGrad(
        net, preset="published", sparsity=0.1, budget=budget, seed=seed
    ),
    "sparse, robust": lambda budget, seed: mg.SparseMoreauGrad(
        net, preset="robust", sparsity=0.1, budget=budget, seed=seed
    ),
}
attacks = {name: mg.TopK(make(BUDGET, 0), epsilon=EPSILON, steps=STEPS, box=BOX) for name, make in KINDS.items()}
results = {name: attack.perturb(x, label) for name, attack in attacks.items()}

# %%
print(f"{'median distance':24}{'own attack':>12}{'strongest':>12}{'other seed':>12}")
rows, clean = {}, {}
for name, make in KINDS.items():
    others = [found.x for other, found in results.items() if other != name]
    best, _ = mg.strongest_attack([results[name], attacks[name].transfer(x, others, label)])
    judge = make(JUDGED, 1)
    clean[name] = judge.attribute(x, label)
    moved = [median_distance(clean[name], judge.attribute(each.x, label)) for each in (results[name], best)]
    rows[name] = (max(moved), median_distance(clean[name], make(JUDGED, 2).attribute(x, label)))
    print(f"{name:24}{moved[0]:12.2f}{rows[name][0]:12.2f}{rows[name][1]:12.2f}")

# %%
fig, place = plt.subplots(figsize=(7, 2.4), layout="constrained")
place.barh(list(rows), [row[0] for row in rows.values()], color="tab:red", label="strongest attack")
place.barh(list(rows), [row[1] for row in rows.values()], color="0.3", height=0.3, label="another seed alone")
place.invert_yaxis()
place.set_xlabel("median normalised distance")
place.spines[["top", "right"]].set_visible(False)
place.legend(frameon=False, fontsize=9)
plt.show()

# %% [markdown]
# Red is what the strongest attack does, dark what a mere seed does. A method is robust where red is short; where red is
# hardly longer than dark, the attack did no more than a seed. It may even be shorter: maps before and after an attack
# are made with the same noise, those of two seeds are not.
#
# Two things to see. The sparse maps move farther than the dense ones: an entry that crosses the threshold changes from
# zero to something, which counts. And the preset "robust" moves less than the published one, dense and sparse.
#
# ## How an attack differentiates a solved map
#
# A MoreauGrad map is the solution of a problem, and an attack needs its derivative. `derivative=` says which one. What
# looks like robustness may be no more than a poor derivative, so we attack the published sparse map in four ways.

# %%
WAYS = {
    "frozen, as published": mg.Frozen(),
    "covariance": mg.Covariance(),
    "unrolled": mg.Unrolled(),
    "implicit, the default": mg.Implicit(),
}
judge, some = KINDS["sparse, published"](JUDGED, 1), slice(0, 3)
reached = {}
for name, derivative in WAYS.items():
    method = mg.SparseMoreauGrad(net, preset="published", sparsity=0.1, budget=BUDGET, derivative=derivative)
    found = mg.TopK(method, epsilon=EPSILON, steps=STEPS, box=BOX).perturb(x[some], label[some])
    after = judge.attribute(found.x, label[some])
    reached[name] = median_distance(clean["sparse, published"][some], after)
    print(f"{name:24}{reached[name]:.2f}   {int(found.gradients.float().mean()):,} gradients for each crop")

# %% [markdown]
# The derivative as published treats the solution as a constant. It is cheap, and as a rule it finds less than the
# implicit and the unrolled one, which follow how the solution moves. A claim of robustness that rests on the frozen
# derivative alone is not worth much.
#
# ## Steady is not the same as right
#
# A constant map cannot be attacked at all. So ask also whether the maps explain: delete the pixels that a map ranks
# first, and see how fast the class disappears (lower is better); insert them, and see how fast it comes (higher is
# better).

# %%
print(f"{'':24}{'moved':>8}{'deletion':>10}{'insertion':>11}")
for name in KINDS:
    lost = mg.deletion(clean[name], x, net, label).mean()
    gained = mg.insertion(clean[name], x, net, label).mean()
    print(f"{name:24}{rows[name][0]:8.2f}{lost:10.2f}{gained:11.2f}")

# %% [markdown]
# ## What to conclude
#
# - Published maps, those of SmoothGrad too, move by several times what a seed does. None of them is safe.
# - The preset "robust" moves least. A part of that is its noise; a part is its statistic, the root mean square, which
#   has no sign to lose. Its map is another map, not the published one made firm, so read all three columns: it is a
#   gain only where the other two columns are good enough for you. In larger measurements its price is deletion; six
#   crops of a small network need not show it.
# - Six crops and one small network show how to ask, not what the answer is. The measured answer, on three data sets and
#   by stronger attacks, says that MoreauGrad as published is no more robust than SmoothGrad at equal cost.
# - These attacks are short, and `sparsity=` chooses its threshold anew for every image, which the derivative does not
#   see. A longer attack finds more. An attack gives a lower bound of what is possible; an upper bound takes a
#   certificate.
#
# ## Where to go next
#
# - [Attacks](../attacks.md): the other attacks, and how far each derivative gets.
# - [Robustness](../robustness.md): studies that do all this for many images, and what they show.
# - [Certificates](../certify.md): what no attack can change.
# - [What is known](../known.md) about a map, by its standard errors.
# - [Which method when](../choose.md).
