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
# # Your own model
#
# Any `torch.nn.Module` in evaluation mode, and any function that returns scores of shape `(N, classes)`, can be
# explained. This notebook trains a small network on the handwritten digits of scikit-learn, explains it in Captum's
# calling convention, and then makes the usual mistakes on purpose, to show which of them are caught, and which one is
# not.

# %%
import warnings

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

import moreaugrad as mg

warnings.filterwarnings("ignore", "IProgress not found")  # other libraries look for ipywidgets
plt.rcParams["figure.dpi"], plt.rcParams["image.interpolation"] = 80, "nearest"
torch.manual_seed(0)

digits = load_digits()
pixels = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16  # (N, 1, 8, 8) in [0, 1]
classes = torch.tensor(digits.target)
train, test = slice(0, 1400), slice(1400, None)
mean, std = pixels[train].mean(), pixels[train].std()
x = (pixels - mean) / std  # what the network takes
print("training images:", len(x[train]), " test images:", len(x[test]))

# %% [markdown]
# ## Train a network
#
# Two convolutions and a linear layer, a few passes over the data: a matter of seconds.

# %%
net = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.SiLU(),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.SiLU(),
    nn.AvgPool2d(2),
    nn.Flatten(),
    nn.Dropout(0.3),
    nn.Linear(512, 10),
)
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for _ in range(10):
    for rows in torch.randperm(len(x[train])).split(64):
        loss = nn.functional.cross_entropy(net(x[train][rows]), classes[train][rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

# %% [markdown]
# ## The first mistake: training mode
#
# The network is still in training mode. Dropout would then draw new masks for every gradient, and batch norm would
# change its statistics. So nothing is computed, and the message says what to do:

# %%
images, labels = x[test][:8], classes[test][:8]
method = mg.SparseMoreauGrad(net, sparsity=0.2, budget="fast")
try:
    method.attribute(images, target=labels)
except ValueError as error:
    print(error)

# %%
net.eval()
with torch.no_grad():
    right = net(x[test]).argmax(1) == classes[test]
print(f"{right.float().mean():.1%} of the test images are classified correctly")

# %% [markdown]
# ## `attribute` and `explain`
#
# `attribute` follows Captum: tensors in, a tensor of the same shape out. `explain` returns an `Explanation`, which
# has the same map and everything that is known about it. Without a target it takes the predicted classes, which
# `attribute` does not.

# %%
maps = method.attribute(images, target=labels)
print("attribute:", type(maps).__name__, tuple(maps.shape))
found = method.explain(images, target=labels)
print("the same map:", bool((maps == found.map).all()))
print(found)

# %% [markdown]
# A line for each image: the class, its score, the share kept, the threshold, and how well the map is known. These
# maps are known far better than those of a photo with the same budget, because the inputs are tiny and the network is
# smooth. A notebook draws a result by itself, the first images of a batch as overlays:

# %%
found

# %% [markdown]
# What is kept lies on strokes, and also beside them: ink where there should be none speaks against a class.
# `signed=True` tells the two apart. Red: more ink here raises the score. Blue: more ink lowers it.

# %%
found.show(index=0, signed=True)

# %% [markdown]
# ## Targets
#
# One class for all images, one for each, or the predicted ones. A wrong number is caught before it costs anything:

# %%
print("one for all: ", method.attribute(images, target=3).shape)
print("one for each:", method.attribute(images, target=[int(each) for each in labels]).shape)
for target in (None, 10, [1, 2]):
    try:
        method.attribute(images, target=target)
    except ValueError as error:
        print(f"target={target}: {error}")

# %% [markdown]
# ## Units
#
# `rho`, `sigma` and `eta` are in units of the tensor that is explained. Here that is `(pixels - mean) / std`. Put the
# normalisation into the network, and the same explanation needs other numbers: lengths such as `sigma` shrink by
# `std`, `rho` by its square, and the map grows by one over `std`. `noise_level` and `sparsity` are relative, so they
# stay as they are.


# %%
class FromPixels(nn.Module):
    """The same network of pixels in [0, 1]."""

    def forward(self, given):
        return net((given - mean) / std)


options = {"noise_level": 0.1, "sparsity": 0.2, "budget": "fast"}
normalised = mg.SparseMoreauGrad(net, rho=1.0, **options).attribute(images, target=labels)
there, raw = FromPixels().eval(), pixels[test][:8]
converted = mg.SparseMoreauGrad(there, rho=float(std) ** 2, **options).attribute(raw, target=labels)
unchanged = mg.SparseMoreauGrad(there, rho=1.0, **options).attribute(raw, target=labels)
print("std:", round(float(std), 3))
print("rho converted, smallest cosine with the first maps:", round(float(mg.cosine(normalised, converted).min()), 4))
print("rho left at 1, smallest cosine with the first maps:", round(float(mg.cosine(normalised, unchanged).min()), 4))
print("largest entry, converted over normalised:", round(float(converted.abs().max() / normalised.abs().max()), 3))

# %% [markdown]
# With `rho` converted, all maps agree but for rounding and for the factor of one over `std`. With `rho` left as it
# was, the envelope reaches several times as far in the network's own units, and at least one map is another one. So
# when you compare with a paper, compare units first ([how](../networks.md#units-comparing-with-a-paper)).
#
# ## Captum's tools
#
# Methods are attributions of Captum, so its tools take them. `NoiseTunnel` around the gradient is SmoothGrad, and
# `sensitivity_max` measures how far small random changes of the image move a map, relative to its norm: smaller is
# steadier.

# %%
from captum.attr import NoiseTunnel
from captum.metrics import sensitivity_max

tunnel = NoiseTunnel(mg.Gradient(net)).attribute(images, nt_type="smoothgrad", nt_samples=64, stdevs=0.3, target=labels)
ours = mg.SmoothGrad(net, samples=64, sigma=0.3).attribute(images, target=labels)
print("NoiseTunnel and SmoothGrad, mean cosine:", round(float(mg.cosine(tunnel, ours).mean()), 3))

methods = {
    "Gradient": mg.Gradient(net),
    "MoreauGrad": mg.MoreauGrad(net, budget="fast"),
    "SparseMoreauGrad": method,
}
for name, each in methods.items():
    torch.manual_seed(0)
    moved = sensitivity_max(each.attribute, images, perturb_radius=0.1, n_perturb_samples=4, target=labels)
    print(f"{name:17} median {float(moved.median()):.3f}, largest {float(moved.max()):.3f}")

# %% [markdown]
# The cosine is close to one; the rest is two draws of the noise. As for sensitivity, a smooth network on small inputs
# has steady gradients to begin with, so little is left to be gained, and a sparse map pays for its zeros: entries
# near the threshold switch on and off. Whether maps get steadier on *your* network is a question for such a
# measurement, or better for an [attack](attack.py), not for the name of a method.
#
# ## More mistakes that are caught

# %%
mistakes = {
    "another dtype": lambda: method.explain(images.double()),
    "token numbers": lambda: method.explain((4 * images).long()),
    "no gradient": lambda: mg.SparseMoreauGrad(lambda given: net(given).detach(), sparsity=0.2).explain(images),
    "a share above one": lambda: mg.SparseMoreauGrad(net, sparsity=20),
    "a misspelt option": lambda: mg.SparseMoreauGrad(net, sparsty=0.2),
}
for name, make in mistakes.items():
    try:
        make()
    except (ValueError, TypeError) as error:
        print(f"{name}: {error}\n")

# %% [markdown]
# ## One that is not caught: softmax inside
#
# A network that ends in a softmax returns scores, so nothing forbids to explain it. But where the network is sure of
# its class, a probability hardly changes any more: gradients get tiny, and which entries are largest becomes a matter
# of noise. Compare the last words of each line, how well the maps are known, with those above:

# %%
sure = nn.Sequential(net, nn.Softmax(dim=1)).eval()
print(mg.SparseMoreauGrad(sure, sparsity=0.2, budget="fast").explain(images))

# %% [markdown]
# The line says "logit", because the package cannot know better; a score that never leaves zero to one is the hint.
# Explain the layer before the softmax. If you want the probability, say so with `score="prob"` on the network that
# returns logits: its map is no better known, but the result says what it is. A log-probability goes flat in the same
# way where the network is sure. A difference of logits does not: how far is a class ahead of the average class?
# `score` takes any such function of the outputs.


# %%
def lead(logits):
    """How far each class is ahead of the average."""
    return logits - logits.mean(dim=1, keepdim=True)


print(mg.SparseMoreauGrad(net, sparsity=0.2, budget="fast", score=lead).explain(images))

# %% [markdown]
# These maps are known about as well as those of the plain logits.

# %% [markdown]
# ## Where to go next
#
# - [Your own network](../networks.md): outputs that are no tensor, several inputs, text, sound, segmentation.
# - [Other libraries](../interop.md): Captum, Quantus, Lightning, Hugging Face's Trainer.
# - [Which method when](../choose.md): when a gradient is enough.
# - [How well is this map known](../known.md): the last words of each line.
