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
import matplotlib.pyplot as plt
import torch
from torch import nn

import moreaugrad as mg

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
for step in range(150):
    pictures, classes = draw_shapes(16, step)
    loss = nn.functional.cross_entropy(net(pictures), classes, weight=torch.tensor([0.3, 1.0, 1.0]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
net.eval().requires_grad_(False)

pictures, classes = draw_shapes(100, seed=1000)
shapes = classes > 0
predicted = net(pictures).argmax(1)
print(
    f"right pixels: {(predicted == classes).float().mean():.1%}, of shapes {(predicted == classes)[shapes].float().mean():.1%}"
)

# %%
both = (classes[:, :24] == 2).any(2).any(1) & (classes[:, 24:] == 1).any(2).any(1)  # a square above a disc
right = (predicted == classes).float().mean((1, 2))
number = int((both * right).argmax())
x, truth = pictures[number : number + 1], classes[number]

fig, places = plt.subplots(1, 2, figsize=(5, 2.6), layout="constrained")
places[0].imshow(x[0, 0], cmap="gray", vmin=0, vmax=1)
places[0].set_title("picture", fontsize=9)
places[1].imshow(net(x).argmax(1)[0], cmap="viridis", vmin=0, vmax=2)
places[1].set_title("what the network says", fontsize=9)
for place in places:
    place.set_axis_off()
plt.show()
