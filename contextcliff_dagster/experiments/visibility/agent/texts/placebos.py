"""Texts as long as those about a task and its score, about neither: name -> one for each.

Each is about something else, and has about as many figures as the text whose place it takes.
"""

PLACEBOS: dict[str, tuple[str, str]] = {
    "toy": (
        "The harbour was dredged in spring: 300 barges took 45 loads of sand to two islands of "
        "120 and 95 houses. Only 12 sailors stayed; 3 more were borrowed from a ferry, the others"
        " went home. The captain kept a diary; the cook wrote recipes into the margins, always in"
        " pencil.",
        "The lighthouse has a keeper: a quiet man from the village whose father painted the "
        "stairs green, moved in with five cuckoo clocks.",
    ),
    "toy-flat": (
        "The orchard was planted late: 1,000 apple saplings in 20 rows along two walls of 500 "
        "feet each. Of the gardeners 10 came by boat, 2 were cousins of theirs, and 8 were "
        "students. The gate is a gift from the mayor; it squeaks in the morning wind, hinges need"
        " oil.",
        "The baker opens at dawn: warm pumpernickel rolls, of any shape, lie under cloth on the "
        "long table.",
    ),
    "digits": (
        "The museum shows 480 painted plates from the river towns, each 9 by 7 inches with blue "
        "flowers from 3 to 12, in six cabinets of 70 to 90 plates. The oldest is a wedding "
        "present with a rooster on the rim; visitors draw it in pencil, children count the little"
        " leaves beneath the tail.",
        "The tailor has a cat: the colour of the cushion on which the cat sleeps is the colour of"
        " sand.",
    ),
    "breast-cancer": (
        "The choir has 143 singers, 61 from the valley and 82 from town, each with 4 songbooks "
        "that hold hymns of the old parish. Benches are wooden. The organ is a patient "
        "instrument; it is the pride of its builder, two boys pump the air for it.",
        "The bridge is stone: the old cobblestone crossing beneath the mill that the farmers "
        "built in a dry summer, repaired twice after torrential floods.",
    ),
    "wine": (
        "The coach stops at 16 stations in two valleys, 7, 5 and 4 each, with a platform clock at"
        " every one of them: Oakfield is from 1,890 to 1,924, Birkdale from 1.25 to 3.75. The "
        "guard rings his small brass bell and waves; the dog barks at the brown horses, then "
        "quickly runs home.",
        "The garden is small: the wrought iron bench by the pond where friends sit is whitewashed.",
    ),
    "diabetes": (
        "The market has 118 stalls with 6 kinds of cheese: goat, sheep, two soft blue ones, "
        "smoked ricotta, four hard. The fountain is the meeting point of the square at noon, from"
        " 11 to 146 people with hats 70 and umbrellas 32. The mayor is an early riser; bread is "
        "the passion of his wife, the piano his own.",
        "The parade is a long summer custom: the drummers of the upper village walk before the "
        "flags and the old men.",
    ),
    "friedman": (
        "The hotel has 40 rooms on 3 floors, painted from 2 to 9; the garden of 6 quiet terraces "
        "with benches for 2 opens a season, from 4.5 to 11.8. The porter is a retired sailor with"
        " a wooden leg on polished stairs; he greets guests, fond of parrots.",
        "The library is a brick house: the windows of the long reading room face between the "
        "river and the park.",
    ),
    "nomad": (
        "The theatre has curtains of velvet, silk and linen with 14 patterns: oak leaf, swans, 2 "
        "kinds of roses, 4 painted harbours, 5 painted castles, morning fog. The usher is the "
        "oldest member of the house. The café is a room of mirrors by the stairs: coffee in cups "
        "of Meissen porcelain, gingerbread, marzipan, apricot jam, plates with blue rims.",
        "The river has a slow summer ferry: the wide wooden deck of the boat carries carts "
        "between Elm (3 old farms) and Ashby (2 new windmills) daily.",
    ),
    "jigsaw": (
        "The letters are greetings from distant cousins with 5 stamps, each 2 or 3 colours: "
        "tulip, tall ship, windmill, castle, falcon, harbour light. The postman sorts boxes and "
        "parcels of up to twenty pounds by street, the most fragile ones in at least two "
        "blankets, and rings a brass bell per garden; Monday is his free day.",
        "The mountain hut is run by a mountaineer: from every window the view is of a valley with"
        " pines that is much greener than one without it.",
    ),
    "leaf": (
        "The boats are gifts of 37 villages, each with 118 planks: 40 for the bottom, 52 for the "
        "sides, 26 for the deck of the boat. Sails are mended. The regatta is an autumn "
        "tradition; tea is the drink of its old jury, rain ends the day with wet shoes, music "
        "after so many speeches.",
        "The carpet is old wool: the faded aquamarine embroidery of the border was given to the "
        "elder daughter by patient neighbours.",
    ),
    "forest": (
        "The songs are memories of sailors with 31 verses: 9 of storms, harbours and gulls, 6 "
        "lonely islands, 16 old ships. The singer is one of 5 sons of a cooper. The concert is a "
        "long evening of many candles; the others pour wine, bread for a guest, soup in a bowl, "
        "and a slice of cake sold.",
        "The kitchen is warm: the smell of fresh bread and hot buttered shallots comes up the "
        "stairs.",
    ),
    "housing": (
        "The toys are pieces of painted wood in baskets with 9 lids: rabbit, horse, dogs, wagons,"
        " carousel, drummers, lantern, umbrella. The carver is the younger brother of a priest. "
        "The workshop is untidy shelves; cousins bring his tea, soup, bread for a day or in a "
        "storm, news of rivers crossed, and greetings of aunts.",
        "The winter is a slow quiet season: the snow on the distant barns lies between bare "
        "branches and long blue shadows.",
    ),
}
