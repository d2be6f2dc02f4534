"""Short prose of our own, in straight typography, that the tests of measures share."""

from __future__ import annotations

HARBOUR = """\
The harbour was empty when Mr. Lund came down, and he thought for a moment that he had mistaken the
day. "Nobody," he said aloud. "Not a soul!" A rope knocked against a mast; somewhere behind the
sheds a dog barked twice and gave it up. He had been told to wait by the well-kept boat, the green
one, and there it lay, its deck scrubbed, its lamp still burning although the sun stood high over
the roofs.

"You're early," said a voice. It was Dr. Hale's daughter -- he knew her by the red scarf -- and she
carried two cups of coffee on a folded newspaper. "Or is it that I am late? My father won't come. He
says the wind is wrong, the tide is wrong... and that you, I am sorry to say, are the wrong man."

He laughed; he couldn't help it. "Did he say that? He said the same in 1987, and he was wrong then."

"Was he?" She handed him a cup. The coffee was black, bitter and almost cold, yet he drank it as if
it were the first he had ever tasted. Between the two of them they knew every stone of that coast:
the long reef, the three small islands, the church that had slid into the bay during the storm of
his boyhood. None of it had ever been put on a map. "Then we'll go without him," he said at last,
and he looked at the water -- grey, flat, patient -- and at the girls' boat tied up beside his own.
"Unless you mind?"

She did not mind. She had, it turned out, been waiting for somebody to ask her since the spring.
"""

ORCHARD = """\
My grandmother kept bees, and she kept them badly. Every June a swarm would rise out of the old
hives, hang for an hour in the pear tree like a dark fruit, and then drift off over the wall to some
better-run household. She never followed. She stood at the kitchen window with her arms folded and
watched them leave, and when they had gone she would say that it served her right.

We children thought this very grand. Other people's grandmothers made jam; ours lost whole nations
before lunch. My brother Paul drew up a list of the swarms, with dates and the direction of flight,
because he meant to recover them when he was rich. I remember the list well, for I stole it once and
had to copy out the missing page after I had dropped it in the pond.

Was there honey? A little. It came in the autumn, dark and tasting of ivy, and it was served on
Sundays in a glass dish with a silver lid that nobody was allowed to lift but her. One spoonful
each! If a guest asked for a second, she looked at him so long and so kindly that he put the spoon
back himself, and my mother would begin to talk about the weather.

The year she died the bees stayed. I have no explanation for it. They came out of the hives in June
as they always had, they hung in the pear tree until the shade reached it, and then, one after the
other, they went home. Paul, who was by then a lawyer and not yet rich, stood in the grass with his
hat in his hand. He took out a pencil and wrote it down.
"""

LETTER = """\
Dear Anna, you ask what the city is like, and I have been putting off the answer, since there are
two of them. The first is the one that I see from the tram at seven in the morning: wet streets,
shutters going up, bakers in their doorways with flour to the elbow, and everyone as silent as
though they had quarrelled in the night. The second begins at dusk. Then the same people sit out on
the steps, they call to each other across the road, and a stranger who walks by with a parcel is
asked what is in it.

I live between the two, on the fourth floor, with a widow who teaches the cello. Her pupils arrive
at four. They are bad in turn, first the tall one and next the twins, and by six I know each wrong
note before it comes. But on Fridays she plays alone. I open my door a little, I put down whatever I
am doing, and I do not believe that there is a richer man in this country.

You were right about the work. It is dull, it is honest, and it leaves my evenings free. There are
eleven of us at long tables, and our task is to compare the old register of ships with the new one,
name by name, until the one or the other is found to be at fault. So far it has always been the new
one. Yesterday I came upon a schooner that had been lost three times in the same year; I asked the
foreman what I should do, and he told me to let her sink. Write soon, and tell me whether the stove
has been mended.
"""

PASSAGES = (HARBOUR, ORCHARD, LETTER)
