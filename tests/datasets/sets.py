"""Three data sets in the published shape of real ones, made by a fixed generator: the same bytes on every run.

`qa` has GSM8K's and TriviaQA's shape (a question, a short answer), `choice` MMLU's and ARC's (four choices, a one-letter answer),
`code` HumanEval's (a signature with its docstring and examples, a long solution, a test). Nothing here is copied from those sets.
"""

from __future__ import annotations

import random

NAMES = "Amara Bjorn Chidi Dalia Emeka Farah Goran Hana Ines Jamal Kaito Leila Mateo Nadia Olga Priya Quentin Rosa Soren Tariq Uma Viktor".split()
PLACES = "bakery|orchard|harbour office|pottery class|bicycle shop|village library|greenhouse|print room|observatory|fish market|school kitchen|sawmill".split("|")
THINGS = "pears|candles|postcards|clay tiles|notebooks|jars of honey|seedlings|bolts|oysters|lanterns|maps|loaves|ribbons|marbles".split("|")

CAPITALS = dict(
    pair.split(":")
    for pair in "Peru:Lima|Norway:Oslo|Kenya:Nairobi|Chile:Santiago|Ghana:Accra|Nepal:Kathmandu|Latvia:Riga|Jordan:Amman|Cuba:Havana|Fiji:Suva|"
    "Senegal:Dakar|Vietnam:Hanoi|Bolivia:Sucre|Estonia:Tallinn|Zambia:Lusaka|Qatar:Doha|Mongolia:Ulaanbaatar|Iceland:Reykjavik|Croatia:Zagreb|"
    "Uruguay:Montevideo|Tunisia:Tunis|Angola:Luanda|Bhutan:Thimphu|Slovenia:Ljubljana|Ecuador:Quito|Morocco:Rabat".split("|")
)
ELEMENTS = [
    row.split(":")
    for row in "helium:He:2|lithium:Li:3|boron:B:5|carbon:C:6|neon:Ne:10|sodium:Na:11|silicon:Si:14|sulfur:S:16|argon:Ar:18|potassium:K:19|calcium:Ca:20|"
    "iron:Fe:26|nickel:Ni:28|copper:Cu:29|zinc:Zn:30|silver:Ag:47|tin:Sn:50|iodine:I:53|tungsten:W:74|gold:Au:79|mercury:Hg:80|lead:Pb:82".split("|")
]
WORKS = [
    row.split(":")
    for row in "Middlemarch:George Eliot:1871|Walden:Henry David Thoreau:1854|Germinal:Emile Zola:1885|Ulysses:James Joyce:1922|Emma:Jane Austen:1815|"
    "Dracula:Bram Stoker:1897|Frankenstein:Mary Shelley:1818|The Trial:Franz Kafka:1925|Candide:Voltaire:1759|Faust:Johann Wolfgang von Goethe:1808|"
    "Moby-Dick:Herman Melville:1851|Ivanhoe:Walter Scott:1819|Cranford:Elizabeth Gaskell:1853|Nana:Emile Zola:1880|Kim:Rudyard Kipling:1901|"
    "Oblomov:Ivan Goncharov:1859|Hunger:Knut Hamsun:1890|The Bell Jar:Sylvia Plath:1963".split("|")
]
TERMS = {
    "osmosis": "movement of water through a membrane towards the side with more dissolved matter",
    "erosion": "wearing away of rock and soil by wind, water or ice",
    "inertia": "the tendency of a body to keep its state of motion",
    "photosynthesis": "making sugar from carbon dioxide and water with the energy of light",
    "refraction": "the bending of light where it passes into another medium",
    "sublimation": "passing from solid to gas without becoming liquid",
    "mitosis": "division of a cell into two with the same chromosomes",
    "tariff": "a tax on goods that cross a border",
    "inflation": "a general rise of prices over time",
    "quorum": "the least number of members who must be present for a vote to count",
    "metaphor": "speaking of one thing as if it were another",
    "isotope": "a form of an element with another number of neutrons",
    "habitat": "the surroundings in which a species lives",
    "monsoon": "a wind that turns with the season and brings rain",
    "catalyst": "a substance that speeds up a reaction and is not used up",
    "syllogism": "two premises and the conclusion that follows from them",
    "plankton": "small organisms that drift in water",
    "torque": "the turning effect of a force about an axis",
    "delta": "land built up where a river slows at its mouth",
    "placebo": "a treatment without an active ingredient",
}


def word_problem(r: random.Random) -> dict:
    who, other = r.sample(NAMES, 2)
    thing, place = r.choice(THINGS), r.choice(PLACES)
    have = r.randint(40, 480)
    opening = [
        f"{who} keeps a tally of the {thing} at the {place} and starts the week with {have} of them.",
        f"There are {have} {thing} on the shelves of the {place} where {who} works.",
        f"At the {place}, {who} is handed a crate that holds {have} {thing}.",
        f"{who} inherits {have} {thing} from an aunt who used to run the {place}.",
    ]
    text, steps = [r.choice(opening)], []
    for kind in r.sample(range(6), 3):
        n = r.randint(2, 9)
        if kind == 0:
            k = n * r.randint(3, 14)
            text.append(f"On Tuesday a delivery brings {k} more.")
            steps.append((have + k, f"{have} + {k}"))
        elif kind == 1:
            k = min(have - 1, r.randint(5, 60))
            text.append(f"{other} borrows {k} and does not bring them back.")
            steps.append((have - k, f"{have} - {k}"))
        elif kind == 2:
            text.append(f"After a good month the number grows to {n} times what it was.")
            steps.append((have * n, f"{have} x {n}"))
        elif kind == 3:
            text.append(f"A careless helper breaks {n}, so those are thrown away.")
            steps.append((have - n, f"{have} - {n}"))
        elif kind == 4:
            text.append(f"The rest is shared out evenly among {n} neighbours, and only one share, rounded down, stays with {who}.")
            steps.append((have // n, f"{have} / {n}, rounded down"))
        else:
            text.append(f"{other} then adds {n} dozen found in the attic.")
            steps.append((have + 12 * n, f"{have} + 12 x {n}"))
        have = steps[-1][0]
    ask = [f"How many {thing} does {who} have in the end?", f"What is the final count of {thing}?", f"How many {thing} remain with {who}?"]
    return {"question": " ".join([*text, r.choice(ask)]), "answer": str(have)}


def qa() -> list[dict]:
    r = random.Random(1871)
    items = [word_problem(r) for _ in range(132)]
    for country, city in CAPITALS.items():
        form = ["Which city is the capital of {}?", "Name the seat of government that {} writes on its letters as its capital.", "In which capital would an envoy to {} present papers?"]
        items.append({"question": r.choice(form).format(country), "answer": city})
    for name, symbol, number in ELEMENTS:
        items.append({"question": f"How many protons are there in the nucleus of {name}?", "answer": number})
        if r.random() < 0.5:
            items.append({"question": f"Which chemical symbol stands for {name} in the periodic table?", "answer": symbol})
    for title, author, year in WORKS:
        items.append({"question": f"Who wrote {title}, first printed in {year}?", "answer": author})
        if r.random() < 0.5:
            items.append({"question": f"In which year did readers first see {title} by {author}?", "answer": year})
    r.shuffle(items)
    return [{"id": f"qa_{at:04}", **item} for at, item in enumerate(items)]


def four(r: random.Random, right: str, pool: list[str]) -> tuple[list[str], str]:
    choices = [right, *r.sample(sorted({x for x in pool if x != right}), 3)]
    r.shuffle(choices)
    return choices, "ABCD"[choices.index(right)]


def choice() -> list[dict]:
    r = random.Random(2020)
    items = []

    def put(subject: str, question: str, right: str, pool: list[str]) -> None:
        choices, answer = four(r, right, pool)
        items.append({"subject": subject, "question": question, "choices": choices, "answer": answer})

    for country, city in CAPITALS.items():
        put("geography", f"A traveller who lands in {country} and asks for the capital is sent to which city?", city, list(CAPITALS.values()))
        put("geography", f"{city} is the capital of which of these countries?", country, list(CAPITALS))
    for name, symbol, number in ELEMENTS:
        put("chemistry", f"A neutral atom of {name} has how many electrons?", number, [row[2] for row in ELEMENTS])
        put("chemistry", f"In a formula, {name} is written as", symbol, [row[1] for row in ELEMENTS])
    for title, author, year in WORKS:
        put("literature", f"The novel or drama called {title} came from the pen of", author, [row[1] for row in WORKS])
        put("literature", f"Of the following, which work was printed in {year}?", title, [row[0] for row in WORKS if row[2] != year or row[0] == title])
    for term, meaning in TERMS.items():
        put("general science", f"What does the word {term} mean to someone who studies the subject?", meaning, list(TERMS.values()))
        put("general science", f"Which term is used for {meaning}?", term, list(TERMS))
    while len(items) < 250:
        a, b, c = r.randint(12, 97), r.randint(3, 19), r.randint(100, 900)
        total = a * b + c
        kind = r.choice([
            f"A pump moves {a} litres each minute for {b} minutes into a tank that held {c} litres. How many litres are in the tank now?",
            f"Tickets cost {a} each; a class of {b} buys one for every pupil and pays a deposit of {c} besides. What is the whole bill?",
            f"If f(x) = {a}x + {c}, what is f({b})?",
        ])
        put("mathematics", kind, str(total), [str(total + d) for d in (-a, a, b, -b, 10, 100, -c // 2)])
    r.shuffle(items)
    return items


# Each step: a sentence of the docstring and the lines that do it. {v} names the list, {k} is a number.
STEPS = [
    ("drop every entry that is smaller than {k}", "{v} = [entry for entry in {v} if entry >= {k}]"),
    ("keep one of each and forget the order in which they came, smallest first", "{v} = sorted(set({v}))"),
    ("replace each entry by its remainder after division by {k}", "{v} = [entry % {k} for entry in {v}]"),
    ("replace neighbours by their difference, so that one entry fewer is left", "{v} = [right - left for left, right in zip({v}, {v}[1:])]"),
    ("turn the list round", "{v} = {v}[::-1]"),
    ("move the first {k} entries to the end", "if {v}:\n        shift = {k} % len({v})\n        {v} = {v}[shift:] + {v}[:shift]"),
    ("write running totals in place of the entries", "totals, carried = [], 0\n    for entry in {v}:\n        carried += entry\n        totals.append(carried)\n    {v} = totals"),
    ("cut everything above {k} down to {k}", "{v} = [min(entry, {k}) for entry in {v}]"),
    ("square the entries that stand at an even position", "{v} = [entry * entry if at % 2 == 0 else entry for at, entry in enumerate({v})]"),
    ("interleave the two halves, the longer one first", "middle = (len({v}) + 1) // 2\n    first, second = {v}[:middle], {v}[middle:]\n    mixed = []\n    for at, entry in enumerate(first):\n        mixed.append(entry)\n        if at < len(second):\n            mixed.append(second[at])\n    {v} = mixed"),
    ("add {k} to each entry that equals the one before it", "bumped, previous = [], None\n    for entry in {v}:\n        bumped.append(entry + {k} if entry == previous else entry)\n        previous = entry\n    {v} = bumped"),
    ("leave out every third entry", "{v} = [entry for at, entry in enumerate({v}, start=1) if at % 3]"),
]
ENDS = [
    ("Return the sum of what is left, or 0 if nothing is.", "return sum({v})", "total"),
    ("Return what is left as a list.", "return {v}", "list"),
    ("Return the largest entry left, or None for an empty list.", "return max({v}) if {v} else None", "largest"),
    ("Return how many entries are left.", "return len({v})", "count"),
    ("Return the entries joined by a hyphen.", 'return "-".join(str(entry) for entry in {v})', "label"),
]
NOUNS = "readings tides receipts footsteps altitudes wages petals rainfall echoes parcels scores voltages ages ledgers distances pulses".split()


def code() -> list[dict]:
    r = random.Random(164)
    items, seen = [], set()
    while len(items) < 204:
        noun = r.choice(NOUNS)
        steps = r.sample(range(len(STEPS)), r.randint(3, 5))
        sentence, last, label = r.choice(ENDS)
        name = f"{r.choice(['settle', 'fold', 'trim', 'weigh', 'rank', 'smooth', 'survey', 'blend'])}_{noun}_{label}"
        if (name, *steps) in seen:
            continue
        seen.add((name, *steps))
        ks = [r.randint(2, 40) for _ in steps]
        words = [STEPS[s][0].format(k=k) for s, k in zip(steps, ks)]
        lines = [STEPS[s][1].format(v=noun, k=k) for s, k in zip(steps, ks)]
        solution = f"    {noun} = list({noun})\n" + "".join(f"    {line}\n" for line in lines) + f"    {last.format(v=noun)}\n"
        head = f"def {name}({noun}: list[int]):\n"
        space: dict = {}
        exec(head + solution, space)  # noqa: S102 - text made just above; gives the examples their true results
        inputs = [[r.randint(0, 60) for _ in range(r.randint(4, 9))] for _ in range(3)]
        results = [space[name](i) for i in inputs]
        examples = "".join(f"    >>> {name}({i})\n    {o!r}\n" for i, o in zip(inputs[:2], results))
        told = "".join(f"    {at}. {word}\n" for at, word in enumerate(words, start=1))
        prompt = f'{head}    """Given whole numbers, called {noun} here, do this in the order written:\n\n{told}\n    {sentence}\n\n{examples}    """\n'
        test = "def check(candidate):\n" + "".join(f"    assert candidate({i}) == {o!r}\n" for i, o in zip(inputs, results))
        items.append({"task_id": f"Made/{len(items)}", "prompt": prompt, "canonical_solution": solution, "test": test, "entry_point": name})
    return items
