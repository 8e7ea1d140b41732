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
# # A vision transformer
#
# Transformers read an image as a row of patches, so two questions are natural: which patches matter, and do methods
# that were made for convolutions work at all? This notebook answers both for a small network whose task is known in
# every detail.
#
# **What this is not.** No package that is installed here brings a pretrained vision transformer, and nothing is
# downloaded, so the one below is tiny and is trained in front of your eyes, on images that are made up. You see how
# to call the methods and how to judge their maps; how they behave on photos with a large transformer, this notebook
# cannot tell. Where downloads are possible, `mg.load_model("timm/vit_small_patch16_224")` takes one from timm, and
# the calls below stay the same.

# %%
import warnings

import matplotlib.pyplot as plt
import torch
from torch import nn

import moreaugrad as mg

warnings.filterwarnings("ignore", "IProgress not found")  # other libraries look for ipywidgets
torch.manual_seed(0)
plt.rcParams["figure.dpi"], plt.rcParams["image.interpolation"] = 80, "nearest"

# %% [markdown]
# ## Images whose answer is known
#
# Each image has two squares on a plain ground: a plain one, which says nothing about the class, and a textured one,
# whose texture *is* the class: rows, columns or checks. So we know where the evidence is, and we know a trap, too:
# the plain square is just as visible, but no good map should point at it.

# %%
SIZE, SIDE, PATCH = 32, 12, 4
CLASSES = ["rows", "columns", "checks"]


def make_images(count, seed):
    """Images (N, 3, H, W), classes (N,), and the masks of the textured and of the plain square (N, H, W)."""
    generator = torch.Generator().manual_seed(seed)
    row, column = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    textures = torch.stack([row // 2 % 2, column // 2 % 2, (row // 2 + column // 2) % 2]).float()
    classes = torch.randint(len(CLASSES), (count,), generator=generator)
    corners = torch.randint(SIZE - SIDE + 1, (count, 2, 2, 1, 1), generator=generator)
    top, left = corners[:, :, 0], corners[:, :, 1]
    squares = (row >= top) & (row < top + SIDE) & (column >= left) & (column < left + SIDE)
    textured, plain = squares[:, 0], squares[:, 1] & ~squares[:, 0]

    def colours(spread):
        return 0.5 + spread * (torch.rand(count, 3, 1, 1, generator=generator) - 0.5)

    images = torch.where(plain[:, None], colours(0.8), colours(0.4))
    images = torch.where(textured[:, None], colours(0.4) + 0.25 * (textures[classes] - 0.5)[:, None], images)
    images = images + 0.06 * torch.randn(count, 3, SIZE, SIZE, generator=generator)
    return images.clamp(0, 1), classes, textured, plain


def normalise(images):
    return (images - 0.5) / 0.25


images, classes, _, _ = make_images(2000, seed=0)
test_images, test_classes, textured, plain = make_images(300, seed=1)
figure, places = plt.subplots(1, 6, figsize=(8, 1.7), layout="constrained")
for place, image, label in zip(places, test_images, test_classes, strict=False):
    place.imshow(image.permute(1, 2, 0).numpy())
    place.set_title(CLASSES[label], fontsize=9)
    place.set_axis_off()

# %% [markdown]
# Six images: in each, look for the texture; the other square is the trap.
#
# ## Train
#
# A transformer of timm with small patches, three blocks and a class token learns this in a few seconds.

# %%
from timm.models.vision_transformer import VisionTransformer

net = VisionTransformer(
    img_size=SIZE, patch_size=PATCH, embed_dim=32, depth=3, num_heads=2, mlp_ratio=2, num_classes=len(CLASSES)
)
epochs, batch = 4, 50
optimizer = torch.optim.AdamW(net.parameters(), weight_decay=0.02)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=epochs * len(images) // batch)
for _ in range(epochs):
    for rows in torch.randperm(len(images)).split(batch):
        loss = nn.functional.cross_entropy(net(normalise(images[rows])), classes[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()

net.eval()  # maps are made in evaluation mode
x = normalise(test_images)
with torch.no_grad():
    right = net(x).argmax(1) == test_classes
print(f"{right.float().mean():.1%} of {len(x)} new images are classified correctly")

# %% [markdown]
# Nearly all are right. A network that solves its task is worth explaining.
#
# ## Five ways to ask
#
# - `Gradient` is the reference, one gradient.
# - `GradCam` finds the right layer by itself. In a transformer with a class token that is the normalisation before
#   the last attention: after it, the patches no longer affect the score. The coarse map has one number for each
#   patch.
# - `IntegratedGradients` sums up to the change of the score from a baseline.
# - `SparseMoreauGrad` keeps single entries.
# - `GroupSparseMoreauGrad` with as many cells per side as there are patches keeps or drops whole patches. This is the
#   unit in which a transformer reads.

# %%
cells = SIZE // PATCH
methods = {
    "gradient": mg.Gradient(net),
    "Grad-CAM": mg.GradCam(net),
    "integrated gradients": mg.IntegratedGradients(net),
    "sparse": mg.SparseMoreauGrad(net, sparsity=0.05, budget="fast"),
    "patches": mg.GroupSparseMoreauGrad(net, groups=cells, sparsity=0.15, budget="fast"),
}
some, target = x[:16], test_classes[:16]
found = {name: method.explain(some, target=target) for name, method in methods.items()}
print(found["patches"][:3])
print("coarse map of Grad-CAM:", tuple(found["Grad-CAM"].coarse.shape))

# %%
shown = range(4)
figure, places = plt.subplots(len(shown), 1 + len(found), figsize=(8.4, 5.8), layout="constrained")
for line, i in zip(places, shown, strict=True):
    line[0].imshow(test_images[i].permute(1, 2, 0).numpy())
    line[0].set_title(CLASSES[test_classes[i]], fontsize=9)
    for place, (name, each) in zip(line[1:], found.items(), strict=True):
        place.imshow(each.map[i].abs().sum(0).numpy(), cmap="inferno")
        place.set_title(name, fontsize=9)
for place in places.flat:
    place.set_axis_off()

# %% [markdown]
# The gradient is grainy. The sparse map is black where nothing was kept, and the last column consists of whole
# patches, the rest being exactly zero. Grad-CAM gives a few blobs of one value per patch: in some lines they cover
# the texture well, in others they lie all over the image.
#
# Some light falls on places without a texture, above all on edges of the plain square. That is not always an error of
# the method. A gradient says where the score *would change*, and to a small patch an edge is not so different from a
# stripe.
#
# ## Count instead of looking
#
# We know the masks, so we can measure: the share of each map on the texture, the share on the plain square (the
# trap), and how often the largest pixel is on the texture. The first line is what a map without any information has:
# the area.

# %%
print(f"{'':22} texture   trap   hits")
print(f"{'area':22}{textured[:16].float().mean():8.0%}{plain[:16].float().mean():8.0%}")
for name, each in found.items():
    share, trap = (mg.energy_in_box(each.map, mask[:16]).nanmean() for mask in (textured, plain))
    hits = mg.pointing_game(each.map, textured[:16], tolerance=0).nanmean()
    print(f"{name:22}{share:8.0%}{trap:8.0%}{hits:8.0%}")

# %% [markdown]
# Read it column by column. On the texture, every method has more than the area alone would give; the two maps with a
# prior have more than the gradient, because dropping weak entries moves weight to where the strong ones are. In the
# second column, a number well above the area means that a map is drawn to what is merely visible. Integrated
# gradients compare with a baseline, here the middle grey, so whatever differs from grey counts. In the third column
# it is worth looking at the cheap methods: if all you ask is "where, roughly?", one or a few dozen gradients may
# point as well as or better than a solved map.
#
# What a solved map adds are exact zeros, a sign for each entry, and a statement of how well it is known:

# %%
for name in ("sparse", "patches"):
    error = found[name].relative_error
    print(f"{name:10} relative errors from {error.min():.0%} to {error.max():.0%}")

# %% [markdown]
# ## One image in full
#
# The result of one image, drawn by the package, with signs: red entries raise the score of the class when they grow.

# %%
found["patches"][0].show(signed=True)

# %% [markdown]
# ## Where to go next
#
# - [Groups from superpixels and tokens](groups.py): other groups than patches.
# - [Which method when](../choose.md): what studies on photos say about these methods.
# - [Your own network](../networks.md): outputs and inputs of other kinds.
# - [Methods](../methods.md): layers, baselines, budgets.
