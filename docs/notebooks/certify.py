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
# # Certify
#
# An attack shows what can happen to a map. A certificate says what cannot: which entries of the map stay, whatever
# change of the image up to a given length somebody makes. This notebook certifies a sparse map by votes, which works
# for any network, looks at what stays, does the same for groups, draws the curve over the length of the change, and
# attacks the result.

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np
import torch
from PIL import Image
from skimage import data

import moreaugrad as mg

warnings.filterwarnings("ignore", "IProgress not found")  # other libraries look for ipywidgets
plt.rcParams["figure.dpi"] = 80

# %% [markdown]
# ## A network and an image
#
# `lipschitz_cifar10` comes with the package: every one of its scores changes by at most the length of the change of the
# image. Its inputs are pixels from `0` to `1`, so lengths below are in these units.

# %%
model = mg.load_model("lipschitz_cifar10")
photo = Image.fromarray(data.chelsea()).crop((130, 20, 350, 240))
x = model.preprocess(photo)[None]
shares = model(x).softmax(1)[0]
for k in shares.topk(3).indices.tolist():
    print(f"{model.labels[k]:8}{shares[k]:6.0%}")

# %% [markdown]
# The network takes the cat for something else; networks with such a guarantee are not the most accurate ones. It does
# not matter here, and it is the first thing to keep in mind: a certificate speaks of the map, not of whether the
# network is right. We certify the map of the class that it predicts.
#
# ## A map of votes
#
# Take many noisy copies of the image. In each, the entries with the largest gradients get a vote. The map is the share
# of the votes, less a threshold. With `rho=0` nothing is solved, so each entry is a plain probability, and a
# probability under Gaussian noise cannot change fast when its image moves. That is all that the certificate rests on.

# %%
SIGMA = 0.25  # of the noise, in pixels from 0 to 1
method = mg.MoreauGrad(
    model, rho=0, statistic="votes", smoothing=mg.Smoothing(sigma=SIGMA), prior=mg.L1(), sparsity=0.05
)
noise = mg.FreshNoise(samples=10_000, alpha=0.001, seed=7)
(found,) = mg.certify(method, x, epsilon=0.01, noise=noise)
print(found)

# %% [markdown]
# Read it as a contract. *With probability* is about the noise that was drawn here, not about images or attackers:
# repeated with new noise, at most one certificate in a thousand may be wrong. *Any image within epsilon* means any: all
# attacks, known or not.
#
# ## What stays
#
# `found.values` has limits for every entry. Where the lower one is above zero, the entry stays in the map for certain;
# where the upper one is zero, it stays out. Between these nothing is promised.

# %%
STATES = ("zero, stays zero", "zero, may come in", "in the map, may go", "in the map, stays")
COLOURS = ("#20242c", "#5a6474", "#e0a030", "#39ffd0")


def sort_entries(found):
    """For each pixel the strongest of its three entries: 0 to 3, as in STATES."""
    state = torch.where(found.values.stays_zero, 0, 1)
    state[found.map > 0] = 2
    state[found.values.stays] = 3
    return state.amax(0) if state.ndim == 3 else state


def draw_states(place, found, title):
    palette = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in COLOURS], dtype=np.uint8)
    place.imshow(palette[sort_entries(found).numpy()])
    place.set_title(title, fontsize=9)
    place.set_axis_off()


fig, places = plt.subplots(1, 3, figsize=(8, 3), layout="constrained")
places[0].imshow(photo.resize((32, 32)))
places[0].set_title("image", fontsize=9)
places[1].imshow(found.map.sum(0).numpy(), cmap="inferno")
places[1].set_title("map: votes above the threshold", fontsize=9)
for place in places[:2]:
    place.set_axis_off()
draw_states(places[2], found, "what is certain")
patches = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in COLOURS]
fig.legend(patches, STATES, loc="outside lower center", ncols=4, fontsize=8)
plt.show()
print(f"{found.support.survivors} of {found.support.active} entries stay for certain")

# %% [markdown]
# Most of the map stays. What may go lies at its rim: entries whose votes are close to the threshold.
#
# ## Longer changes
#
# The samples were counted once; `found.at(epsilon)` asks the same counts about another length and runs no network.

# %%
lengths = [SIGMA * share for share in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2)]


def curve(found):
    """The share of the non-zeros that stays, for each length."""
    return [found.at(length).support.survivors / found.support.active for length in lengths]


print(f"{'epsilon':>8}{'in 8-bit steps':>16}{'entries that stay':>19}{'cosine':>8}")
for length in lengths:
    other = found.at(length)
    kept = other.support.survivors / other.support.active
    words = "  promises nothing" if other.vacuous else ""
    print(f"{length:8.4f}{255 * length:16.1f}{kept:19.0%}{other.change.cosine:8.2f}{words}")

# %% [markdown]
# The length of a change is its Euclidean norm over all pixels together: one pixel changed by that much, or all of them
# by very little. So these are small changes. At the end of the table the certificate says itself that it promises
# nothing, and then no number of it should be quoted.
#
# ## Groups are firmer
#
# A cell of the image has one vote for all its entries. There are fewer of them, and they differ more, so their votes
# lie farther from the threshold.

# %%
groups = mg.GroupSparseMoreauGrad(
    model, rho=0, statistic="votes", tau=0.15, smoothing=mg.Smoothing(sigma=SIGMA), groups=8
)
(cells,) = mg.certify(groups, x, epsilon=0.01, noise=noise)
print(f"{cells.support.survivors} of {cells.support.active} cells stay for certain")

fig, places = plt.subplots(1, 2, figsize=(8, 3), width_ratios=(1, 1.6), layout="constrained")
draw_states(places[0], cells, "cells")
places[1].plot(lengths, curve(cells), "o-", color="tab:green", label="cells of an 8 x 8 grid")
places[1].plot(lengths, curve(found), "o-", color="tab:blue", label="single entries")
places[1].set(xscale="log", xlabel="length of the change, epsilon", ylabel="share that stays", ylim=(-0.02, 1.02))
places[1].spines[["top", "right"]].set_visible(False)
places[1].legend(frameon=False, fontsize=9)
plt.show()

# %% [markdown]
# The curve of the cells lies above that of the entries. That is the trade: a coarser map, and a promise that reaches
# farther.
#
# ## Try to break it
#
# A certificate can be tested. We attack the map with a longer change, and ask `violations` which promises the new map
# breaks. The map at the attacked image must have the same threshold, so we take `found.method`, in which everything is
# frozen that was chosen at the image; and it is an estimate from samples too, so `error` allows for its own inaccuracy.

# %%
EPSILON = 0.05
attack = mg.TopK(mg.SmoothGrad(model, sigma=SIGMA, samples=256, statistic="square"), epsilon=EPSILON, steps=10)
attacked = attack.perturb(x, found.target).x
new_noise = mg.FreshNoise(samples=10_000, seed=8)
(again,) = mg.certify(found.method, attacked, found.target, epsilon=EPSILON, noise=new_noise)
promised = found.at(EPSILON)
stayed = int(((found.map > 0) & (again.map > 0)).sum())
print(f"length of the change:  {float((attacked - x).norm()):.3f}")
print("promises broken:      ", promised.violations(again.map, error=again.accuracy.error) or "none")
print(f"entries that stayed:   {stayed} of {found.support.active}; promised were {promised.support.survivors}")

# %% [markdown]
# More stays than was promised: the promise holds for the worst change, and this attack is hardly that. The truth lies
# between the two numbers.
#
# ## What is not promised
#
# - **The prediction.** The class may change within epsilon; the map of the class that was predicted first stays.
# - **That the map is a good explanation.** A certified map of a wrong prediction is certified all the same.
# - **Another threshold.** The threshold that `sparsity=` chose here is held at the changed image. A share chosen anew
#   is another map.
# - **Noise relative to the image.** `noise_level=` depends on the image, so nothing is known of it; `mg.certify`
#   refuses it, and says which `sigma` to take instead:

# %%
try:
    mg.certify(mg.MoreauGrad(model, rho=0, statistic="votes", noise_level=0.1), x)
except ValueError as refused:
    print(refused)

# %% [markdown]
# - **The published map.** Around a solution (`rho` above zero) there are no votes to count. Those maps are certified by
#   constants of the network, which promises less.
#
# ## Where to go next
#
# - [Certificates](../certify.md): other recipes, more networks, and how much is certified on many images.
# - [Theory and proofs](../certificates.md), and the whole list of what is not promised.
# - [Attacks](../attacks.md): the other side, what can happen.
# - [Which method when](../choose.md).
