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
#     name: speech
#     needs: [silero_vad]
# ---

# %% [markdown]
# # Speech
#
# A signal is explained like an image: its entries are samples in time, and its groups are pieces of time. Here a
# network that tells speech from other sounds, Silero VAD, listens to a synthetic voice, a tone and a hiss. We ask which
# pieces of the wave make it say *speech*, and why it says so even in a moment of silence.
#
# The weights come in the package `silero-vad`:
#
# ```console
# pip install silero-vad
# ```

# %%
import warnings
from importlib.util import find_spec
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

import moreaugrad as mg

warnings.filterwarnings("ignore", "IProgress not found")  # other libraries look for ipywidgets
plt.rcParams["figure.dpi"] = 72
RATE, FRAME, CONTEXT = 16_000, 512, 64  # samples per second, of a frame, and of the frame before that it sees again

# %% [markdown]
# ## The network
#
# The package loads its network as TorchScript, which PyTorch has deprecated, and feeds it frame by frame. It also holds
# the weights of a sibling as safetensors. The network is small, so we write it down: short spectra, four convolutions,
# a recurrent cell that remembers earlier frames, and one number for each frame, the log-odds of speech. The whole wave
# goes through at once, so a gradient reaches from any frame to any earlier sample.


# %%
class SpeechDetector(nn.Module):
    """Waves (N, 1, T) to the log-odds of speech in each frame, (N, T / 512)."""

    def __init__(self):
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 258, 256, 128, bias=False)
        self.conv1 = nn.Conv1d(129, 128, 3, 1, 1)
        self.conv2 = nn.Conv1d(128, 64, 3, 2, 1)
        self.conv3 = nn.Conv1d(64, 64, 3, 2, 1)
        self.conv4 = nn.Conv1d(64, 128, 3, 1, 1)
        self.lstm_cell = nn.LSTMCell(128, 128)
        self.final_conv = nn.Conv1d(128, 1, 1)

    def forward(self, waves):
        frames = nn.functional.pad(waves[:, 0], (CONTEXT, 0)).unfold(1, FRAME + CONTEXT, FRAME)
        count = frames.shape[1]
        padded = nn.functional.pad(frames.flatten(0, 1)[:, None], (0, CONTEXT), mode="reflect")
        real, imaginary = self.stft_conv(padded).chunk(2, dim=1)
        found = (real.square() + imaginary.square() + 1e-12).sqrt()  # smooth at silence
        for layer in (self.conv1, self.conv2, self.conv3, self.conv4):
            found = layer(found).relu()
        found = found[..., 0].unflatten(0, (-1, count))
        state, memory = None, []
        for frame in found.unbind(1):
            state = self.lstm_cell(frame, state)
            memory.append(state[0])
        return self.final_conv(torch.stack(memory, 2).relu())[:, 0]


net = SpeechDetector().eval()
weights = Path(find_spec("silero_vad").origin).parent / "data" / "silero_vad_16k.safetensors"
net.load_state_dict(load_file(weights))
print(f"{sum(each.numel() for each in net.parameters()):,} weights")

# %% [markdown]
# ## A synthetic voice
#
# A vowel is a buzz from the vocal folds, shaped by resonances of the mouth, the formants. Five vowels with short pauses
# between them are our speech; a pure tone and white noise follow.

# %%
FORMANTS = {  # frequencies of three resonances, in hertz
    "a": (730, 1090, 2440),
    "i": (270, 2290, 3010),
    "e": (530, 1840, 2480),
    "o": (570, 840, 2410),
    "u": (300, 870, 2240),
}
random = np.random.default_rng(0)


def resonate(signal, frequency, bandwidth):
    """A resonator of second order, run through the Fourier transform."""
    radius, angle = np.exp(-np.pi * bandwidth / RATE), 2 * np.pi * frequency / RATE
    size = 2 * len(signal)
    turn = np.exp(-2j * np.pi * np.arange(size // 2 + 1) / size)
    response = 1 / (1 - 2 * radius * np.cos(angle) * turn + radius**2 * turn**2)
    return np.fft.irfft(np.fft.rfft(signal, size) * response, size)[: len(signal)]


def speak(vowel, seconds=0.22):
    count = int(seconds * RATE)
    pitch = np.linspace(130, 110, count) * (1 + 0.01 * np.cumsum(random.normal(size=count)) / np.sqrt(count))
    buzz = np.diff(np.floor(np.cumsum(pitch / RATE)), prepend=0) + 0.02 * random.normal(size=count)
    for frequency, bandwidth in zip(FORMANTS[vowel], (90, 110, 160), strict=True):
        buzz = resonate(buzz, frequency, bandwidth)
    edges = np.minimum(np.arange(count), np.arange(count)[::-1]) / (0.04 * RATE)
    return 0.3 * np.minimum(1, edges) * buzz / np.abs(buzz).max()


def pause(seconds):
    return np.zeros(int(seconds * RATE))


parts = [pause(0.3)]
for vowel in "aieou":
    parts += [speak(vowel), pause(0.1)]
ends = np.cumsum([len(part) for part in parts])
tone = 0.3 * np.sin(2 * np.pi * 880 * np.arange(int(0.3 * RATE)) / RATE)
parts += [pause(0.2), tone, pause(0.2), 0.1 * random.normal(size=int(0.3 * RATE)), pause(0.1)]
wave = np.concatenate(parts)
wave = wave + 0.002 * random.normal(size=len(wave))  # no recording is silent
count = len(wave) // FRAME
x = torch.tensor(wave[: count * FRAME], dtype=torch.float32)[None, None]

speech = net(x).sigmoid().detach()[0]
seconds = np.arange(count) * FRAME / RATE
fig, (upper, lower) = plt.subplots(2, 1, figsize=(8, 3), sharex=True, layout="constrained")
upper.plot(np.arange(x.shape[-1]) / RATE, x[0, 0].numpy(), linewidth=0.3, color="black")
upper.set_ylabel("wave")
lower.step(seconds, speech.numpy(), where="post", color="tab:red")
lower.set(ylabel="speech?", xlabel="seconds", ylim=(-0.05, 1.05))
plt.show()

# %% [markdown]
# The network takes the vowels for speech, and the tone and the hiss for none. In the short pauses between vowels it
# goes on to say *speech*, although there is nothing to hear.
#
# ## What makes it say speech?
#
# The score that we explain is the mean of the log-odds over all frames. A function `score=` says so; it returns one
# number for each wave, so there is no target. `groups` cuts the wave into pieces, here one for each frame, and
# `sparsity` keeps a quarter of them.


# %%
def mean_speech(odds):
    return odds.mean(1)


options = {"groups": count, "rho": 0.01, "sigma": 0.01, "budget": 400}
method = mg.GroupSparseMoreauGrad(net, sparsity=0.25, score=mean_speech, **options)
found = method.explain(x)
print(found)
found.show()

# %% [markdown]
# The colour behind the wave, and the lower panel, show to what the network would react first. It is not the loudest
# part of a vowel but where a voice sets in and where it ends, and the beginning of the recording, of which the network
# remembers nothing yet. Nothing is marked in the tone and in the hiss: there it has made up its mind, and small changes
# do not matter to it.
#
# ## Does the map hold?
#
# A map is a claim that can be tested. We silence the marked pieces, and for comparison as many others, the loudest ones
# of the voice that are not marked.


# %%
def silence(wave, pieces):
    """The wave with nothing but the noise of the recording in some pieces."""
    quiet, random = wave.clone(), torch.Generator().manual_seed(0)
    for piece in pieces:
        quiet[..., piece * FRAME : (piece + 1) * FRAME] = 0.002 * torch.randn(FRAME, generator=random)
    return quiet


def per_piece(values):
    return values[0, 0].unflatten(0, (-1, FRAME)).norm(dim=1)


sizes, loudness = per_piece(found.map), per_piece(x)
marked = sizes.nonzero()[:, 0].tolist()
loudness[int(ends[10]) // FRAME :] = 0  # the tone and the hiss are no voice
others = torch.where(sizes > 0, 0, loudness).topk(len(marked)).indices.tolist()
for name, tested in (("as it is", x), ("marked pieces silent", silence(x, marked)), ("others", silence(x, others))):
    odds = net(tested).detach()
    print(f"{name:22}mean log-odds {float(odds.mean()):6.2f}, speech in {int((odds > 0).sum())} of {count} pieces")

# %% [markdown]
# Without the marked pieces the score falls, and less of the wave counts as speech. Without the others it falls too, but
# less, although they are the loud middles of the vowels.
#
# ## Why speech in a pause?
#
# Now one moment: a piece in the pause after the third vowel. Its output is one entry of what the network returns, so
# its number is the `target`.

# %%
piece = -(-int(ends[5]) // FRAME) + 1  # the second piece that lies in the pause altogether
print(f"speech in this pause: {speech[piece]:.0%}")
moment = mg.GroupSparseMoreauGrad(net, sparsity=0.1, **options | {"budget": 800}).explain(x, target=piece)
print(moment)

sizes = per_piece(moment.map)
fig, (upper, lower) = plt.subplots(2, 1, figsize=(8, 3), sharex=True, layout="constrained")
upper.plot(np.arange(x.shape[-1]) / RATE, x[0, 0].numpy(), linewidth=0.3, color="black")
upper.set_ylabel("wave")
lower.bar(seconds, sizes.numpy(), width=FRAME / RATE, align="edge", color="tab:red")
lower.set(ylabel="map, per piece", xlabel="seconds", xlim=(0, 2))
for place in (upper, lower):
    place.axvspan(piece * FRAME / RATE, (piece + 1) * FRAME / RATE, color="tab:blue", alpha=0.4)
plt.show()
print("pieces after this one in the map:", int((sizes[piece + 1 :] > 0).sum()))

# %% [markdown]
# Blue is the moment that we ask about. A good part of its evidence lies before it: the vowel has left its trace in the
# memory of the network, which holds through a short pause and so does not cut a sentence into words. Later pieces
# cannot matter to a network that runs forward in time, and the map has none of them.
#
# ## Where to go next
#
# - [Your own network](../networks.md): other inputs, and any function of what a network returns.
# - [Which method when](../choose.md).
# - [What is known](../known.md) about a map, and what to do where a result says that another seed would give another
#   map.
