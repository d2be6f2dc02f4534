"""Tasks whose data are prepared from a file: name -> about data and model, about the score.

They give no number of rows: a prepared file may be a part.
"""

KAGGLE_TEXTS: dict[str, tuple[str, str]] = {
    "nomad": (
        "The data are oxides of aluminium, gallium and indium with 12 columns: space group, atoms, "
        "3 shares of metals, 3 lattice lengths, 3 lattice angles, formation energy. The target is "
        "the band gap in electronvolts. The model is gradient boosting of trees: max_iter trees of "
        "limited depth, leaves and rows a leaf, each scaled by learning_rate, leaves with an L2 "
        "penalty.",
        "The score is the root mean squared logarithmic error: the square root of the average "
        "squared difference between log(1 + predicted gap) and log(1 + true gap).",
    ),
    "jigsaw": (
        "The data are comments from online discussions with 6 labels, each 0 or 1: toxic, severe "
        "toxic, obscene, threat, insult, identity hate. The model weighs words and phrases of up "
        "to ngram_max words by TF-IDF, the max_features most frequent in at least min_df comments, "
        "and fits a logistic regression per label; C is its inverse penalty.",
        "The score is the mean column-wise ROC AUC: for each label the chance that a comment with "
        "it is ranked above one without it, averaged over labels.",
    ),
    "leaf": (
        "The data are leaves of 99 species, each with 192 columns: 64 for the margin, 64 for the "
        "shape, 64 for the texture of the leaf. Columns are standardised. The model is a logistic "
        "regression; C is the inverse of its L2 penalty, tol ends its solver at small gradients, "
        "max_iter after so many iterations.",
        "The score is log loss: the negative natural logarithm of the probability given to the "
        "true species, averaged over held-out leaves.",
    ),
    "forest": (
        "The data are patches of forest with 54 columns: 10 of terrain, distances and shade, 4 "
        "wilderness areas, 40 soil types. The target is one of 7 types of tree cover. The model is "
        "a random forest of n_estimators trees; the others limit depth, rows for a split, rows in "
        "a leaf, and the share of columns tried.",
        "The score is accuracy: the share of held-out patches whose predicted cover type is the "
        "true one.",
    ),
    "housing": (
        "The data are blocks of houses in California with 8 columns: income, age, rooms, bedrooms, "
        "population, occupancy, latitude, longitude. The target is the median value of a house. "
        "The model is extremely randomised trees; parameters set their number, depth, rows for a "
        "split or in a leaf, share of columns tried, and resampling of rows.",
        "The score is the root mean squared error: the square root of the average squared "
        "difference between predicted and true values.",
    ),
}
