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
# # A photo in five minutes
#
# Which pixels made a network say "cat"? This notebook explains one photo, reads the result line by line, and asks the
# questions that usually follow: what about another class, why this class rather than that one, what if fewer entries
# were kept? The photo comes with scikit-image and the weights with a package that `moreaugrad` depends on, so nothing
# is downloaded.

# %%
import warnings
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np
from skimage.data import chelsea

import moreaugrad as mg

warnings.filterwarnings("ignore", "IProgress not found")  # other libraries look for ipywidgets
plt.rcParams["figure.dpi"] = 80
temporary = TemporaryDirectory()
folder = Path(temporary.name)

model = mg.load_model("efficientnet_lite0")
photo = chelsea()  # an array (height, width, colours); a file name or a PIL image works as well
print(model.name, "knows", len(model.labels), "classes; the photo is an array", photo.shape)


# %% tags=["hide-input"]
class Small:
    """A figure as a small JPEG, so that this page loads quickly. In your own notebook `found.show()` is enough."""

    def __init__(self, figure, dots=66):
        self.figure, self.dots = figure, dots

    def _repr_jpeg_(self):
        file = BytesIO()
        self.figure.savefig(file, format="jpeg", dpi=self.dots)
        return file.getvalue()


# %% [markdown]
# ## Explain
#
# Without a target, the predicted class is explained. The budget says how many gradients of the network may be spent;
# `"fast"` takes seconds on a CPU, `"balanced"` is the default, and `"best"` is for figures that have to be right.

# %%
found = mg.explain(model, photo, budget="fast")
print(found)

# %% [markdown]
# The first line says which method ran, the shape of the map, what it cost, and the seed of its noise. The line of the
# photo says, from left to right:
#
# - the class that was explained and its score, a logit;
# - how much of the map is not zero, in entries (each pixel has three, one for each colour) and in pixels;
# - `eta`, the threshold that keeps just this share;
# - how well the map is known. The map is an estimate, because noise is averaged, and its own standard error says how
#   good an estimate.
#
# With this small budget the line most likely ends with a warning that another seed gives another map. Take it
# seriously: the picture below shows where the evidence is, but not every single entry of it can be trusted. [How well
# is this map known](../known.md) explains the number.
#
# Each of these facts is a field, with one value for each image of the batch:

# %%
print("class          ", found.labels[0])
print("score          ", round(float(found.score[0]), 2))
print("share kept     ", round(float(found.kept[0]), 3))
print("pixels kept    ", round(float(found.pixels_kept[0]), 3))
print("relative error ", round(float(found.relative_error[0]), 2))
print("converged      ", bool(found.converged[0]))
print("gradients      ", int(found.gradients[0]))

# %% [markdown]
# ## Look
#
# `found.show()` draws the photo as the network saw it, the map, and an overlay. With a path it also writes a file.

# %%
Small(found.show(folder / "cat.png"))

# %% [markdown]
# The photo has been cut to a square, as the model's preprocessing does it. Black means exactly zero: nothing was kept
# there. Most of what is kept lies on the eyes, the nose and the whiskers. That is where the score changes fastest; it
# is no proof that the network "looks" there in any deeper sense.
#
# ## Another class
#
# The network has more than one opinion. `top` explains the classes with the highest scores, and `target` any class by
# name or number.

# %%
best = mg.explain(model, photo, budget="fast", top=2)
for rank in best:
    print(f"{rank.labels[0]:15} logit {float(rank.score[0]):.2f}")
print("cosine of their maps:", round(float(mg.cosine(best[0].map, best[1].map)[0]), 2))

# %% [markdown]
# Both are cats, and the network can hardly decide between them. A cosine of one would mean equal maps, and of zero
# maps that have nothing in common; these two share a good part, which we may read as "cat", and differ in the rest.
# The noise in both of them counts as a difference, too.
#
# ## Why this rather than that
#
# To see what speaks for one class *rather than* another, explain the difference of their scores. Colours need signs
# here: red entries push the difference up when they grow, blue ones push it down.

# %%
contrast = mg.explain(model, photo, target=best[0].labels[0], against=best[1].labels[0], budget="fast")
print(contrast)
Small(contrast.show(folder / "contrast.png", signed=True))

# %% [markdown]
# The score in the printed line is now a difference of two logits, so it is much smaller than before, and what both
# classes share has cancelled. Red and blue lie side by side: the difference depends on patterns of the fur and the
# eyes, not on how bright they are.
#
# ## How sparse?
#
# `sparsity` is the share of the entries to keep. A list gives one map for each value. `rho` and the noise stay as
# they are, only the threshold changes.

# %%
shares = [0.01, 0.05, 0.2]
path = mg.explain(model, photo, sparsity=shares, budget="fast")
figure, places = plt.subplots(1, len(shares), figsize=(7.2, 2.6), layout="constrained")
for place, each in zip(places, path, strict=True):
    strength = each.map[0].abs().sum(0).numpy()
    place.imshow(strength, cmap="inferno", vmax=np.percentile(strength[strength > 0], 90))
    place.set_title(f"{float(each.kept[0]):.0%} of the entries", fontsize=9)
    place.set_axis_off()
plt.close(figure)
Small(figure, dots=80)

# %% [markdown]
# From left to right more entries survive: first the strongest, in an eye and beside the nose, then the other eye and
# the whiskers, and finally much of the fur. There is no right share; choose what a reader can take in, and say which
# one it was.
#
# ## Other statistics of the same gradients
#
# The solver has seen many noisy gradients. Their mean, thresholded, is the map. Other statistics come without further
# cost: the root mean square (`rms`), how often an entry was among the largest (`votes`), and a compromise
# (`geometric`). They are dense, because no threshold has been applied.

# %%
figure, places = plt.subplots(1, 4, figsize=(8.6, 2.4), layout="constrained")
for place, (name, each) in zip(places, found.statistics.items(), strict=True):
    strength = each[0].abs().sum(0).numpy()
    place.imshow(strength, cmap="inferno", vmax=np.percentile(strength, 99))
    place.set_title(name, fontsize=9)
    place.set_axis_off()
plt.close(figure)
Small(figure, dots=80)

# %% [markdown]
# The signed mean is grainy, because entries of both signs lie side by side and much of the noise is still in it. The
# others add sizes that cannot cancel, so they are smoother; but they no longer say in which direction a pixel pulls.
# To have a sparse map of one of them, ask for it: `mg.explain(model, photo, statistic="rms")`.
#
# ## Keep it
#
# A result is a file of plain arrays without pickle, which NumPy reads on its own. The inputs, the labels and the
# options are in it; only the statistics are not.

# %%
file = found.save(folder / "cat.npz")
again = mg.Explanation.load(file)
print(again)
print("the same numbers:", bool((again.map == found.map).all()))
print("for JSON:", {name: found.to_dict()["images"][0][name] for name in ("label", "kept", "converged")})

# %%
temporary.cleanup()

# %% [markdown]
# ## Where to go next
#
# - [Your own model](own_model.py): the same with a network of yours, in Captum's calling convention.
# - [Which method when](../choose.md): where MoreauGrad is the right tool, and where another is.
# - [Sparsity and groups](../sparsity.md): how the share is chosen, and whole regions instead of single entries.
# - [How well is this map known](../known.md): what the standard error promises.
# - [Methods](../methods.md): every method and its options.
