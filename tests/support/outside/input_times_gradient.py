"""A method from outside the package."""

import moreaugrad as mg


@mg.register("method", "input_times_gradient", flags={"signed", "deterministic"})
class InputTimesGradient(mg.Method):
    """The gradient times the input."""

    def compute(self, call):
        _, grad = call.score.value_and_grad(call.x)
        return mg.Explanation(map=call.x * grad, gradients=call.each(1))
