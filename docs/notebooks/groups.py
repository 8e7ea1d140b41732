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
# # Groups from superpixels and tokens
#
# A sparse map of single entries is often a scatter of dots. People think in regions: this eye, that patch, those
# words. `GroupSparseMoreauGrad` keeps or drops whole groups of entries, and every dropped group is exactly zero. This
# notebook makes groups of one photo in five ways: a grid, superpixels, labels of your own, the patches of a
# transformer, and the colour channels. The last section says how the same works for tokens.

# %%
import warnings
from io import BytesIO

import matplotlib.pyplot as plt
import numpy as np
import torch
from PIL import Image
from skimage.data import chelsea
from skimage.segmentation import find_boundaries, slic

import moreaugrad as mg

warnings.filterwarnings("ignore", "IProgress not found")  # other libraries look for ipywidgets
model = mg.load_model("efficientnet_lite0")
x, picture = model.preprocess_and_crop(Image.fromarray(chelsea()))
x, picture = x[None], np.asarray(picture)  # a batch of one, and what the network sees of the photo
print("input of the network:", tuple(x.shape))


# %% tags=["hide-input"]
class Small:
    """A figure as a small JPEG, so that this page loads quickly."""

    def __init__(self, figure):
        self.figure = figure
        plt.close(figure)

    def _repr_jpeg_(self):
        file = BytesIO()
        self.figure.savefig(file, format="jpeg", dpi=80)
        return file.getvalue()


def draw(rows, titles):
    """Maps on the photo, with the borders of the groups where a label map is given."""
    figure, places = plt.subplots(1, len(rows), figsize=(3.4 * len(rows), 3.7), layout="constrained", squeeze=False)
    for place, (maps, labels), title in zip(places[0], rows, titles, strict=True):
        strength = maps[0].abs().sum(0).numpy()
        grey = picture.mean(2, keepdims=True) / 255
        heat = plt.get_cmap("inferno")(strength / np.percentile(strength[strength > 0], 95))[..., :3]
        shown = np.where(strength[..., None] > 0, 0.3 * grey + 0.7 * heat, 0.5 * grey)
        if labels is not None:
            borders = find_boundaries(np.asarray(labels), mode="inner")
            shown[borders] = 0.5 + 0.5 * shown[borders]
        place.imshow(shown)
        place.set_title(title, fontsize=9)
        place.set_axis_off()
    return Small(figure)


# %% [markdown]
# ## A grid
#
# A number means cells per side. A cell holds all three colours of its pixels. `sparsity` is now the share of the
# *groups* to keep, and the default is larger than that of single entries.

# %%
grid = mg.GroupSparseMoreauGrad(model, groups=14, sparsity=0.15, budget="fast").explain(x)
print(grid)
print("groups that are not zero:", f"{float(mg.active_groups(grid.map, groups=14)[0]):.1%}")

# %% [markdown]
# The share of the entries and that of the groups agree, because the cells have one size. Compare the line with that
# of single entries in [A photo in five minutes](photo.py), for the same budget: a group averages over many entries,
# so which groups to keep is easier to tell than which entries.
#
# ## Superpixels
#
# Cells cut through eyes and whiskers. Superpixels follow the photo instead: the word alone is enough, and every image
# of a batch gets segments of its own. To draw their borders, or to use another number of them, make the label map
# yourself; it is an integer array (H, W), and any segmentation does.

# %%
labels = torch.as_tensor(slic(picture, n_segments=200, start_label=0))
superpixels = mg.GroupSparseMoreauGrad(model, groups=labels, sparsity=0.15, budget="fast").explain(x)
print(superpixels)
print("number of segments:", int(labels.max()) + 1)
draw([(grid.map, None), (superpixels.map, labels)], ["a grid", "superpixels"])

# %% [markdown]
# Left, the kept cells are squares; right, they are segments, whose borders are drawn. Two things to know before you
# read more into it:
#
# - A group is kept or dropped by the *norm* of its entries, so a large segment has an advantage over a small one. The
#   printed share of entries may therefore differ from the share of segments.
# - A kept group is shrunk as a whole, by one factor. Inside of it, the map is as grainy as any gradient.
#
# ## Your own labels
#
# If you know the parts of the photo, ask about them. Here a few rectangles, drawn by hand, stand for an annotation.
# Every entry must have a label, so the rest of the photo needs groups, too. Cut it into pieces: a group counts by its
# norm, and as one group the rest would win by its size alone.

# %%
parts = {"left eye": (60, 20, 130, 110), "right eye": (85, 165, 150, 224), "nose": (155, 105, 215, 175)}
own = len(parts) + torch.as_tensor(slic(picture, n_segments=60, start_label=0))
for number, (top, left, bottom, right) in enumerate(parts.values()):
    own[top:bottom, left:right] = number
annotated = mg.GroupSparseMoreauGrad(model, groups=own, sparsity=0.2, budget="fast").explain(x)
for number, name in enumerate(parts):
    inside = annotated.map[0][:, own == number]
    print(f"{name:10} {'kept' if inside.any() else 'dropped'}, norm {float(inside.norm()):.3f}")
pieces = own[(annotated.map[0] != 0).any(0)].unique()
print("pieces of the rest that were kept:", int((pieces >= len(parts)).sum()))
draw([(annotated.map, own)], ["three parts, and pieces of the rest"])

# %% [markdown]
# The rectangles were kept, and some pieces of the rest: the forehead and whiskers on the left. Compare the norms
# before you speak of an order among parts of different size.
#
# ## Patches and channels
#
# The patches of a vision transformer are a grid: an image of `224` pixels with patches of `16` has `14` cells per
# side, so `groups=14` above *was* the grid of such a network. [A vision transformer](vision_transformer.py) uses it
# on one.
#
# `groups="channels"` makes each colour one group, which is of use where channels mean something: bands of a
# satellite, electrodes, time steps. For a photo it answers a question that few people ask:

# %%
colours = mg.GroupSparseMoreauGrad(model, groups="channels", sparsity=0.34, budget="fast").explain(x)
for name, each in zip(("red", "green", "blue"), colours.map[0], strict=True):
    print(f"{name:6} norm {float(each.norm()):.4f}")

# %% [markdown]
# One channel is left and the other two are exactly zero. To no surprise, the answer depends on the units: channels
# are compared after normalisation.
#
# ## Tokens, columns, pieces of sound
#
# Groups work for any input. What the labels look like depends on its shape:
#
# | input | labels | a group is |
# |---|---|---|
# | image `(N, C, H, W)` | a number, `(H, W)`, `(N, H, W)` or all axes | a region, with all its channels |
# | embedded text `(N, tokens, dim)` | `(tokens,)` or `(N, tokens)` | a token, or all tokens of a word |
# | table `(N, columns)` | `(columns,)` | a set of columns |
# | signal `(N, C, T)` | a number, `(T,)` or `(C, T)` | a stretch of time |
#
# A toy reader of embedded tokens shows the call; its tokens form words of one to three tokens:

# %%
torch.manual_seed(0)
words = torch.tensor([0, 0, 1, 2, 2, 2, 3, 4])
reader = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Flatten(), torch.nn.Linear(8 * 32, 3))
embedded = torch.randn(1, 8, 16)
read = mg.GroupSparseMoreauGrad(reader.eval(), groups=words, sparsity=0.4, budget="fast").explain(embedded, target=1)
print("norm of each token:", [round(float(each.norm()), 2) for each in read.map[0]])

# %% [markdown]
# The tokens of one word live or die together. A real sentence and a real encoder are in [Text with token
# groups](text.py).
#
# A label map that does not cover the input is refused before anything is computed, and the message lists the shapes
# that would do:

# %%
try:
    mg.GroupSparseMoreauGrad(model, groups=labels[:200]).explain(x)
except ValueError as error:
    print(error)

# %% [markdown]
# ## Where to go next
#
# - [Sparsity and groups](../sparsity.md): what a group norm does, and how the share is found.
# - [Text with token groups](text.py): a sentence encoder and whole tokens.
# - [A vision transformer](vision_transformer.py): patches as groups.
# - [Your own network](../networks.md): several inputs, sound, video.
