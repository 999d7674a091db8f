# %% [hidden]
import numpy as np

from plainformer import formulas
from plainformer.gradients.formulas import cross_entropy_back
from plainformer.lessons.words import vector

p_V = formulas.softmax([2.0, 1.0, 0.0])
sure = cross_entropy_back(np.array([[9.0, 0.0, 0.0]]), np.array([0]))[0]

# %% [markdown]
# ## Misconceptions
#
# **Misconception.** Backpropagation is how networks learn.
#
# **Correction.** It is how slopes are found. What is done with them is the optimiser's, and whether that learns
# anything is the data's. [inference]
#
# **Misconception.** The gradient says how far to go.
#
# **Correction.** It says how fast the loss grows with a small move, and no more. AdamW's first step is as long for a
# slope of a thousand as for one of a thousandth. [inference]
#
# **Misconception.** A residual's gradient is at least as large as the one that arrives.
#
# **Correction.** It is that one plus another, and the two can cancel. [inference]
#
# **Misconception.** Without residuals gradients vanish, and that is why deep stacks do not learn.
#
# **Correction.** Without norms they do. With norms they may arrive, and the stack learns nothing all the same: in the
# measurement above it stayed where guessing is. [measured: residuals]
#
# **Misconception.** A masked token must be kept out of the backward pass by a rule of its own.
#
# **Correction.** Its weight is zero, and softmax's rule multiplies by the weight. [inference]
#
# ## In twenty seconds
#
# - The slope along a number is the sum, over what it moved, of that slope times how far it was moved. [inference]
# - A matrix product goes back as two: by the matrix, and by what was read. [inference]
# - A norm takes off two shares of the slope: the mean, and what points along the token. [inference]
# - Softmax with the logarithm gives what was said less what should have been. [inference]
# - An addition hands the slope to both sides; a weight met twice adds up its slopes. [inference]
# - AdamW moves every weight by about the rate, where its slopes agree. [inference]
#
# ## Self-test
#
# **Question.** A model says {{vector(p_V, ".2f")}} and the first word is right. What is the slope along the scores?
#
# **Answer.** {{vector(p_V - np.eye(3)[0], ".2f")}}: what was said, less one at the right word. [computed]
#
# **Question.** Another is sure and right. How long is its slope?
#
# **Answer.** Nearly zero; with a score of nine above the others it is {{np.linalg.norm(sure):.4f}} long. It has
# nothing to learn from this word. [computed]
#
# **Question.** You multiply the loss by a thousand. What happens to AdamW's steps, and what to a clip of the gradient
# at one?
#
# **Answer.** The steps stay the same, but for epsilon: mean and root of the mean square grow alike. The clip now cuts
# nearly every step, which AdamW hardly feels either; decay and a printed gradient length are where one sees it.
# [inference]
#
# **Question.** Why does the slope of the token table have nonzero rows for words that the batch does not hold?
#
# **Answer.** Because it is the head, too: every word was scored at every position, and each score had a slope. Of a
# table that is only read those rows are zero. [inference]
#
# **Question.** Your hand-written norm passes a comparison at a tolerance of a hundredth and fails at a millionth.
# Where do you look?
#
# **Answer.** At the third term. Without it the gradient is off by an angle that is small for wide random tokens.
# [inference]
#
# ## Papers

# %% [papers]
