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
# # Segmentation
#
# A segmentation network gives every pixel a score for every class, so there are two questions: why is *this pixel* a
# square, and why is *this region* one? Both are a matter of saying which score to explain. The pixel is a `target`, the
# region a `score=` function.
#
# The network here is trained in the notebook, on a task in which a pixel alone tells nothing: discs and squares are
# filled with the same grey. To know what a pixel in the middle belongs to, the network has to look at the outline
# around it.

# %%
import warnings

import matplotlib.pyplot as plt
import torch
from torch import nn

import moreaugrad as mg

warnings.filterwarnings("ignore", "IProgress not found")  # other libraries look for ipywidgets
plt.rcParams["figure.dpi"] = 80
SIDE, CLASSES = 48, ("background", "disc", "square")


def draw_shapes(count, seed):
    """Pictures (N, 1, H, W) with two shapes each, and the class of every pixel (N, H, W)."""
    random = torch.Generator().manual_seed(seed)
    rows, columns = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    classes = torch.zeros(count, SIDE, SIDE, dtype=torch.long)
    for half in range(2):  # one shape above, one below
        radius = torch.randint(7, 11, (count, 1, 1), generator=random)
        across = torch.randint(12, SIDE - 12, (count, 1, 1), generator=random)
        down = torch.randint(11, 14, (count, 1, 1), generator=random) + 23 * half
        kind = torch.randint(1, 3, (count, 1, 1), generator=random)
        disc = (rows - down).square() + (columns - across).square() <= radius.square()
        square = torch.maximum((rows - down).abs(), (columns - across).abs()) <= radius * 0.89  # of the same area
        inside = torch.where(kind == 1, disc, square)
        classes = torch.where(inside, kind, classes)
    pictures = 0.35 + 0.35 * (classes > 0) + 0.08 * torch.randn(count, SIDE, SIDE, generator=random)
    return pictures[:, None].clamp(0, 1), classes


# %% [markdown]
# ## A network that looks around
#
# Three times down and up again, with connections between the levels. It sees the whole picture, and is trained in some
# seconds.


# %%
class Segmenter(nn.Module):
    """Pictures (N, 1, H, W) to class scores of every pixel (N, classes, H, W)."""

    def __init__(self, width=12):
        super().__init__()
        sizes = [width, 2 * width, 4 * width, 4 * width]
        self.down = nn.ModuleList(self._block(before, after) for before, after in zip([1, *sizes], sizes, strict=False))
        self.up = nn.ModuleList(self._block(sizes[i] + sizes[i + 1], sizes[i]) for i in (2, 1, 0))
        self.last = nn.Conv2d(width, len(CLASSES), 1)

    @staticmethod
    def _block(before, after):
        return nn.Sequential(nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU())

    def forward(self, pictures):
        levels = [self.down[0](pictures)]
        for block in self.down[1:]:
            levels.append(block(nn.functional.max_pool2d(levels[-1], 2)))
        found = levels.pop()
        for block in self.up:
            wide = nn.functional.interpolate(found, scale_factor=2.0)
            found = block(torch.cat([wide, levels.pop()], 1))
        return self.last(found)


torch.manual_seed(0)
net = Segmenter()
optimizer = torch.optim.Adam(net.parameters(), 5e-3)
for step in range(200):
    pictures, classes = draw_shapes(12, step)
    loss = nn.functional.cross_entropy(net(pictures), classes, weight=torch.tensor([0.3, 1.0, 1.0]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
net.eval().requires_grad_(False)

pictures, classes = draw_shapes(100, seed=1000)
shapes = classes > 0
predicted = net(pictures).argmax(1)
agree = predicted == classes
print(f"right: {agree.float().mean():.1%} of all pixels, {agree[shapes].float().mean():.1%} of those in shapes")

# %% [markdown]
# It separates shapes from background well, and mostly tells discs from squares. We take a picture with a square above a
# disc.

# %%
both = (classes[:, :24] == 2).any(2).any(1) & (classes[:, 24:] == 1).any(2).any(1)  # a square above a disc
right = (predicted == classes).float().mean((1, 2))
number = int((both * right).argmax())
x, truth = pictures[number : number + 1], classes[number]

fig, places = plt.subplots(1, 2, figsize=(5, 2.6), layout="constrained")
places[0].imshow(x[0, 0].numpy(), cmap="gray", vmin=0, vmax=1)
places[0].set_title("picture", fontsize=9)
places[1].imshow(net(x).argmax(1)[0].numpy(), cmap="viridis", vmin=0, vmax=2)
places[1].set_title("what the network says", fontsize=9)
for place in places:
    place.set_axis_off()
plt.show()

# %% [markdown]
# ## One pixel
#
# The network returns `(N, classes, H, W)`. A `target` of three numbers picks the score of one class at one pixel, here
# of *square* in the middle of the square. Bright pixels speak for *square* and for *disc* alike, so we also ask for the
# difference: why square **and not** disc? That is a function of what the network returns.

# %%
square = (truth == 2).nonzero()
row, column = square.float().mean(0).round().int().tolist()
options = {"sparsity": 0.05, "rho": 0.1, "sigma": 0.05, "budget": 400}


def square_or_disc_here(out):
    return out[:, 2, row, column] - out[:, 1, row, column]


pixel = mg.SparseMoreauGrad(net, **options).explain(x, target=(2, row, column))
difference = mg.SparseMoreauGrad(net, score=square_or_disc_here, **options).explain(x)
print(pixel)


def draw_map(place, found, title):
    kept = found.map[0, 0]
    top = float(kept[kept != 0].abs().quantile(0.9))  # a few large entries would leave no colour to the others
    place.imshow(x[0, 0].numpy(), cmap="gray", vmin=-0.6, vmax=1)
    place.imshow(kept.masked_fill(kept == 0, torch.nan).numpy(), cmap="RdBu_r", vmin=-top, vmax=top)
    place.set_title(title, fontsize=9)
    place.set_axis_off()


fig, places = plt.subplots(1, 2, figsize=(6, 3.2), layout="constrained")
draw_map(places[0], pixel, "why is this pixel square?")
draw_map(places[1], difference, "why square and not disc?")
for place in places:
    place.plot(column, row, "x", color="lime", markersize=9, markeredgewidth=2)
plt.show()

# %% [markdown]
# Red pixels speak for it where they are bright, blue ones where they are dark; the cross marks the pixel. Both maps lie
# mostly on the pixel and its neighbours, because their brightness reaches the score by the shortest way. The outline,
# where discs and squares differ, has small entries only, nearly white here. One pixel is a narrow question.
#
# ## A region
#
# So we ask about all pixels of the square together: the mean score of a region, and the mean difference. What is
# peculiar to one pixel averages out; what they have in common stays.

# %%
mask = (truth == 2).float()


def square_in_region(out):
    return (out[:, 2] * mask).sum((1, 2)) / mask.sum()


def square_or_disc(out):
    return ((out[:, 2] - out[:, 1]) * mask).sum((1, 2)) / mask.sum()


region = mg.SparseMoreauGrad(net, score=square_in_region, **options).explain(x)
contrast = mg.SparseMoreauGrad(net, score=square_or_disc, **options).explain(x)

fig, places = plt.subplots(1, 2, figsize=(6, 3.2), layout="constrained")
draw_map(places[0], region, "why is this region square?")
draw_map(places[1], contrast, "why square and not disc?")
plt.show()

# %% [markdown]
# The function works row by row: it gets what the network returns for some rows, noisy copies among them, and must give
# one number for each. Something of its own, such as the mask, must fit any number of rows.
#
# The second map has red pixels in the corners, which must be bright for a square, and blue ones beside the edges, which
# must be dark: a disc of the same area would bulge out there.
#
# ## Test it
#
# If that is the reason, then it takes few pixels to turn the square into a disc. We change the pixels of the second
# map, against the sign of the map, and for comparison as many pixels of the square, picked at random.

# %%
change = -0.5 * contrast.map.sign()
count = int((change != 0).sum())
inside = mask.flatten().nonzero()[:, 0]
picked = inside[torch.randperm(len(inside), generator=torch.Generator().manual_seed(0))[:count]]
at_random = torch.zeros(SIDE * SIDE)
at_random[picked] = -0.5
tests = {"as it is": x, "against the map": x + change, "at random": x + at_random.view_as(x)}

fig, places = plt.subplots(2, 3, figsize=(6, 4), layout="constrained")
for (upper, lower), (name, tested) in zip(places.T, tests.items(), strict=True):
    out = net(tested.clamp(0, 1))
    upper.imshow(tested[0, 0].numpy(), cmap="gray", vmin=0, vmax=1)
    upper.set_title(name, fontsize=9)
    lower.imshow(out.argmax(1)[0].numpy(), cmap="viridis", vmin=0, vmax=2)
    for place in (upper, lower):
        place.set_axis_off()
    called = (out.argmax(1)[0] == 2)[mask > 0].float().mean()
    print(f"{name:16}square less disc {float(square_or_disc(out)[0]):6.2f}, called square {called:.0%} of the region")
plt.show()

# %% [markdown]
# Changes where the map points turn the region; as many at random places in the square do much less. That is what a
# faithful map should show, and it tests the map by the network alone, without an opinion of what a square is.
#
# ## Where to go next
#
# - [Your own network](../networks.md): detectors, several inputs, and other outputs than a class.
# - [Which method when](../choose.md).
# - [What is known](../known.md) about a map.
# - [Robustness](../robustness.md): metrics that test maps on many images.
