"""Tasks with bundled or generated data: name -> about data and model, about the score."""

BUNDLED_TEXTS: dict[str, tuple[str, str]] = {
    "toy": (
        "The data are generated: 400 rows of 60 columns in two classes of 202 and 198 rows. "
        "Only 10 columns matter; 2 more are mixtures of them, the rest is noise. The model is a "
        "logistic regression; C is the inverse of its L2 penalty, max_iter limits the iterations "
        "of its solver.",
        "The score is accuracy: the number of held-out rows whose predicted class is their true "
        "class, divided by the number of held-out rows.",
    ),
    "toy-flat": (
        "The data are generated: 1,000 rows of 20 columns in two classes of 500 rows each. Of the "
        "columns 10 matter, 2 are mixtures of these, and 8 are noise. The model is a logistic "
        "regression; C is the inverse of its L2 penalty, max_iter limits the iterations of its "
        "solver.",
        "The score is accuracy: correctly predicted held-out rows, of either class, as a share of "
        "all held-out rows.",
    ),
    "digits": (
        "The data are 599 images of handwritten digits, each 8 by 8 pixels with grey levels from "
        "0 to 16, in ten classes of 51 to 69 images. The model is a support vector classifier "
        "with a radial kernel on raw pixels; C weighs errors in training, gamma is the inverse "
        "width of the kernel.",
        "The score is accuracy: the share of held-out images for which the predicted digit is the "
        "digit that was written.",
    ),
    "breast-cancer": (
        "The data are 569 breast tumours, 212 malignant and 357 benign, each with 30 columns that "
        "describe the cell nuclei in an image. Columns are standardised. The model is a logistic "
        "regression; C is the inverse of its L2 penalty, max_iter limits the iterations of its "
        "solver.",
        "The score is log loss: the negative natural logarithm of the probability that the model "
        "gave to the true diagnosis, averaged over held-out tumours.",
    ),
    "wine": (
        "The data are 178 wines from three growers, 59, 71 and 48 each, with 13 chemical "
        "measurements in their own units: proline goes from 278 to 1,680, hue from 0.48 to 1.71. "
        "The model lets the n_neighbors nearest wines vote; p is the power of the Minkowski "
        "distance, weights says whether near votes count more.",
        "The score is accuracy: the share of held-out wines whose predicted grower is the true "
        "one.",
    ),
    "diabetes": (
        "The data are 442 patients with 10 columns: age, sex, body mass index, blood pressure, six "
        "blood values. The target is the progression of diabetes after a year, from 25 to 346 "
        "with mean 152 and standard deviation 77. The model is an elastic net; alpha is the "
        "strength of its penalty, l1_ratio the share of L1 in it.",
        "The score is the root mean squared error: the square root of the average squared "
        "difference between predicted and true progression.",
    ),
    "friedman": (
        "The data are 500 rows of 10 columns, uniform from 0 to 1; the target is a smooth function "
        "of 5 columns plus noise of variance 1, from 1.2 to 27.9. The model is support vector "
        "regression on scaled columns; C weighs errors beyond epsilon, gamma narrows its radial "
        "kernel.",
        "The score is the root mean squared error: the root of the mean squared difference "
        "between predicted and true target.",
    ),
}
