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
# # A table with column names
#
# Saliency maps are not only for images. A row of a table is a vector, a column is a feature with a name, and a map
# that is exactly sparse is a short list of columns. This notebook explains a small network on the breast cancer data
# of scikit-learn, asks which columns are kept over the whole test set, and checks the answer against permutation
# importance, which knows nothing about gradients.
#
# The data are measurements of cell nuclei from microscope images; the classes are malignant and benign. It is an
# exercise, not a medical tool.

# %%
import warnings

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

import moreaugrad as mg

warnings.filterwarnings("ignore", "IProgress not found")  # other libraries look for ipywidgets
plt.rcParams["figure.dpi"] = 80
torch.manual_seed(0)

data = load_breast_cancer()
names = [str(each) for each in data.feature_names]
values, classes = torch.tensor(data.data, dtype=torch.float32), torch.tensor(data.target)
order = torch.randperm(len(values))
train, test = order[:450], order[450:]
mean, std = values[train].mean(0), values[train].std(0)
x = (values - mean) / std
print(len(values), "rows of", len(names), "columns, such as", names[:3])

# %% [markdown]
# Columns are standardised, and must be: `rho`, the noise and the threshold have one unit for the whole row, so
# columns can only compete if they have one scale.
#
# ## A small network

# %%
net = nn.Sequential(nn.Linear(len(names), 32), nn.SiLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=1e-3)
for _ in range(60):
    loss = nn.functional.cross_entropy(net(x[train]), classes[train])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
net.eval()


def accuracy(rows):
    with torch.no_grad():
        return float((net(rows).argmax(1) == classes[test]).float().mean())


print(f"{accuracy(x[test]):.1%} of {len(test)} test rows are classified correctly")

# %% [markdown]
# ## One row
#
# Two classes have two logits, and only their difference decides. So we explain the difference: what makes this row
# malignant rather than benign? `score` takes any function of the outputs. A fifth of the columns is kept.


# %%
def malignant(logits):
    return logits[:, 0] - logits[:, 1]


method = mg.SparseMoreauGrad(net, score=malignant, sparsity=0.2, sigma=0.3, budget="fast")
found = method.explain(x[test])
row = int((classes[test] == 0).nonzero()[0])  # the first malignant one
print(found[row])
found[row].show(names=names, signed=True)

# %% [markdown]
# Each line of the picture is a column with its (standardised) value. Red bars: a larger value makes the row more
# malignant in the eyes of the network; blue bars: a larger value makes it less so. Columns without a bar are exactly
# zero.
#
# Mind what a bar is: the slope of the score, per standard deviation of the column, averaged over the noise. It is not
# what the column has contributed; a column may have a large slope while its value is quite ordinary. For
# contributions, compare with `mg.IntegratedGradients`.
#
# The noise here has an absolute size, `sigma`, of a third of a standard deviation: rows have no natural range as
# images have.
#
# ## All rows
#
# Which columns are kept, and how often? Since dropped entries are exactly zero, counting is all it takes.

# %%
kept = (found.map != 0).float().mean(0)
strength = found.map.abs().mean(0)
print(f"maps that are known to within 30 %: {found.converged.float().mean():.0%}")
for column in kept.argsort(descending=True)[:8]:
    print(f"{names[column]:24} kept in {kept[column]:4.0%} of the rows")
print("never kept:", int((kept == 0).sum()), "columns")

# %% [markdown]
# Some columns are kept in most rows, others now and then, and many never. This says on what the *network* leans. It
# does not say that leaning on it is a good idea.
#
# ## An honest check
#
# Permutation importance asks another question: how much worse does the network get when one column is shuffled over
# the rows? It needs no gradient, and it measures what happens to the predictions. With an accuracy close to one, only
# a few rows can flip, so we look at the loss instead.


# %%
def loss_of(rows):
    with torch.no_grad():
        return float(nn.functional.cross_entropy(net(rows), classes[test]))


importance = torch.zeros(len(names))
for column in range(len(names)):
    for _ in range(20):
        shuffled = x[test].clone()
        shuffled[:, column] = shuffled[torch.randperm(len(test)), column]
        importance[column] += (loss_of(shuffled) - loss_of(x[test])) / 20

rank = mg.spearman(strength[None], importance[None])
top_kept, top_shuffled = (set(each.argsort(descending=True)[:6].tolist()) for each in (kept, importance))
print("rank correlation of mean |map| and importance:", round(float(rank[0]), 2))
print("in both lists of six:", [names[column] for column in top_kept & top_shuffled])
print("only kept:           ", [names[column] for column in top_kept - top_shuffled])
print("only by permutation: ", [names[column] for column in top_shuffled - top_kept])

# %%
figure, place = plt.subplots(figsize=(5.2, 3.6), layout="constrained")
place.scatter(strength, importance, s=14)
place.axhline(0, color="grey", linewidth=0.6)
for column in {*strength.argsort(descending=True)[:6].tolist(), *importance.argsort(descending=True)[:2].tolist()}:
    at = float(strength[column]), float(importance[column])
    place.annotate(names[column], at, fontsize=7, xytext=(3, 3), textcoords="offset points")
place.set(xlabel="mean |map|", ylabel="loss added by shuffling the column")
place.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# The two rankings are related but far from equal, and look at the corner where they disagree most: a column with
# strong slopes in every row whose shuffling adds no loss, or even takes some away (below the grey line). The slopes
# are real: the network does use this column. But what it has learned from it does not carry over to new rows, which
# is what overfitting looks like. Neither list alone would have told.
#
# Other reasons why the lists differ:
#
# - The columns of this table are highly correlated (radius, perimeter and area of the same nuclei). Shuffling one of
#   them makes rows that do not exist, such as a large radius with a small area. The slope looks at real rows only.
# - A slope is local. Permutation moves a value across its whole range.
# - Among correlated columns a sparse map picks some and drops the others, although they carry nearly the same
#   information. Another network, as good as this one, may lean on other columns of the bunch: train with another
#   seed, and see.
#
# A column that is kept in most rows *and* matters when it is shuffled is one that you can speak about. A column in
# only one of the lists deserves a second look.
#
# ## Where to go next
#
# - [Sparsity and groups](../sparsity.md): keep sets of columns together, for example the three columns of each
#   measurement.
# - [Your own network](../networks.md): a table beside an image, and any function of the output.
# - [How well is this map known](../known.md): what "known to within" promises.
# - [Methods](../methods.md): integrated gradients and DeepLIFT, whose entries are contributions.
