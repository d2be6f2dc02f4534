"""Right and wrong replies of chat models, written in the many manners that models use.

Everything here is a pure function of its arguments: the same `random.Random` state gives the
same reply. Right replies are meant to be accepted by a careful human, wrong ones never.
"""

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal

MANNERS: tuple[str, ...] = (
    "terse", "sentence", "explanation_first", "explanation_after", "bold", "quoted", "json",
    "fence", "list", "other_language", "units", "answer_label", "reasoning_inline", "hedging",
    "apology_first", "repeats_question",
)  # fmt: skip

TYPES = ("number", "label", "span", "choice")


@dataclass(frozen=True)
class Question:
    """A question about a document, its right answer and wrong values of the same document.

    `unit` is the unit of a number, or a noun that says what a label or a span is.
    """

    text: str
    answer: str
    others: tuple[str, ...]
    kind: str
    unit: str = ""


def _make(kind: str, text: str, answer: str, others: str, unit: str = "") -> Question:
    return Question(text, answer, tuple(others.split("|")), kind, unit)


_CLAIM = " Answer approved, rejected, pending or withdrawn."
_RISK = " Answer low, medium, high or critical."
_MOOD = " Choose one of: positive, negative, neutral, mixed."

QUESTIONS: dict[str, tuple[Question, ...]] = {
    "number": (
        _make("number", "What is the monthly service fee under the contract?", "EUR 1,250",
              "EUR 1,300|EUR 250|EUR 15,000", "EUR"),
        _make("number", "What is the late payment interest rate?", "12%", "8%|1.5%|20%", "%"),
        _make("number", "What is the notice period for ordinary termination?", "30 days",
              "14 days|60 days|90 days", "days"),
        _make("number", "How many open tickets are listed in the weekly report?", "7",
              "12|17|3", "tickets"),
        _make("number", "What is the total revenue reported for 2023?", "EUR 1.4 million",
              "EUR 1.1 million|EUR 2.4 million|EUR 14 million", "EUR"),
        _make("number", "What is the gross total of invoice INV-2031?", "USD 4,318.75",
              "USD 3,629.20|USD 689.55|USD 4,138.75", "USD"),
        _make("number", "How many pallets were shipped in the third quarter?", "18,400",
              "16,950|21,300|1,840", "pallets"),
        _make("number", "What is the initial term of the lease?", "24 months",
              "12 months|36 months|6 months", "months"),
        _make("number", "What is the maximum response time for priority 1 incidents?", "4 hours",
              "1 hour|8 hours|24 hours", "hours"),
        _make("number", "What is the discount granted on the annual licence?", "7.5%",
              "5%|10%|2.5%", "%"),
        _make("number", "How many employees does the supplier have in Leipzig?", "112",
              "121|12|340", "employees"),
        _make("number", "What is the liability cap per event?", "GBP 250,000",
              "GBP 25,000|GBP 500,000|GBP 1,000,000", "GBP"),
    ),
    "label": (
        _make("label", "What is the status of expense claim 881?" + _CLAIM, "approved",
              "rejected|pending|withdrawn", "status"),
        _make("label", "What is the status of expense claim 902?" + _CLAIM, "rejected",
              "approved|pending|withdrawn", "status"),
        _make("label", "What is the risk level of the Delta project?" + _RISK, "high",
              "low|medium|critical", "risk level"),
        _make("label", "What is the risk level of the payroll migration?" + _RISK, "low",
              "medium|high|critical", "risk level"),
        _make("label", "Is invoice 4417 paid, unpaid, overdue or disputed?", "paid",
              "unpaid|overdue|disputed", "payment status"),
        _make("label", "What is the state of the maintenance contract: active, inactive, "
              "suspended or terminated?", "inactive", "active|suspended|terminated", "state"),
        _make("label", "What is the tone of the customer's second email?" + _MOOD, "negative",
              "positive|neutral|mixed", "tone"),
        _make("label", "What is the outcome of the fire safety audit? One of compliant, "
              "non-compliant, exempt, waived.", "compliant", "non-compliant|exempt|waived",
              "audit outcome"),
        _make("label", "What is the category of ticket 5520? (bug, feature request, question, "
              "incident)", "feature request", "bug|question|incident", "category"),
    ),
    "span": (
        _make("span", "Who is the account manager named in the agreement?", "Maria Keller",
              "Jonas Keller|Maria Novak|Peter Lindqvist", "contact"),
        _make("span", "What is the place of delivery?", "Rotterdam", "Antwerp|Hamburg|Gdansk",
              "port"),
        _make("span", "Which clause covers confidentiality?", "Clause 14.2",
              "Clause 9.1|Clause 4.2|Clause 14.3", "provision"),
        _make("span", "What is the product reported in ticket 5512?", "Atlas Backup Pro",
              "Atlas Backup Lite|Atlas Monitor|Orion Backup Pro", "product"),
        _make("span", "Who is the landlord under the lease?", "Northwind Properties",
              "Northwind Retail|Harbour Properties|Keller & Sons", "company"),
        _make("span", "What is the court that has jurisdiction?", "Commercial Court of Lyon",
              "Commercial Court of Lille|Paris Court of Appeal|Geneva Arbitration Chamber",
              "court"),
        _make("span", "What is the code name of the acquisition project?", "Blue Heron",
              "Grey Heron|Blue Falcon|Silver Fox", "code name"),
        _make("span", "What is the root cause given in the incident report?",
              "expired TLS certificate", "full disk|expired API token|faulty network switch",
              "root cause"),
        _make("span", "Which supplier delivered the conveyor belts?", "Hansen Industrial",
              "Hansen Logistics|Brandt Machinery|Novak Industrial", "supplier"),
    ),
    "choice": (
        _make("choice", "Which party bears the shipping cost?\nA) the buyer\nB) the seller\n"
              "C) the carrier\nD) the insurer", "B", "A|C|D"),
        _make("choice", "What is the main reason for the delay?\nA. supplier shortage\n"
              "B. bad weather\nC. customs inspection\nD. staff illness", "A", "B|C|D"),
        _make("choice", "Which payment term applies? Options: A) net 14; B) net 30; C) net 45; "
              "D) net 60", "C", "A|B|D"),
        _make("choice", "Which department raised ticket 7734?\n(A) Finance\n(B) Legal\n"
              "(C) Procurement\n(D) IT support", "D", "A|B|C"),
        _make("choice", "How is the agreement renewed?\n\nA: automatically for one year\n"
              "B: by written notice\nC: by board resolution\nD: by a new tender", "B", "A|C|D"),
        _make("choice", "Which region shows the highest growth?\nA) Nordics\nB) Iberia\n"
              "C) Benelux\nD) Balkans", "A", "B|C|D"),
        _make("choice", "What happens to the deposit on early termination? A) it is refunded; "
              "B) it is forfeited; C) it is offset against rent; D) it is donated", "C", "A|B|D"),
        _make("choice", "Pick the delivery term used in the order.\nA. EXW\nB. FOB\nC. CIF\n"
              "D. DAP", "D", "A|B|C"),
        _make("choice", "Who must approve orders above the limit?\nA) the team lead\n"
              "B) the plant manager\nC) the chief financial officer\nD) the supervisory board",
              "C", "A|B|D"),
    ),
}  # fmt: skip

# --- helpers ------------------------------------------------------------------------------

_NUMBER = re.compile(
    r"(?:(EUR|USD|GBP) )?([\d,]+(?:\.\d+)?)( million)?(%| (?:days?|months?|hours?))?"
)
_CURRENCY = {"EUR": ("€", "euros"), "USD": ("$", "US dollars"), "GBP": ("£", "pounds")}
_SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SOURCES = ("section 3", "the table on page 2", "section 6.1", "the second paragraph",
            "the annex", "the footer of page 5", "the cover sheet")  # fmt: skip


def _cap(text: str) -> str:
    return text[:1].upper() + text[1:]


def _words(number: int) -> str:
    """The English words of a number from 0 to 999."""
    if number < 20:
        return _SMALL[number]
    if number < 100:
        tens, rest = _TENS[number // 10 - 2], number % 10
        return f"{tens}-{_SMALL[rest]}" if rest else tens
    head, rest = f"{_SMALL[number // 100]} hundred", number % 100
    return f"{head} and {_words(rest)}" if rest else head


def _value(answer: str) -> Decimal:
    found = re.search(r"[\d,]+(?:\.\d+)?", answer)
    return Decimal(found[0].replace(",", "")) if found else Decimal(0)


def _digits(answer: str, digits: str) -> str:
    """The answer with its number written as `digits`."""
    return re.sub(r"[\d,]+(?:\.\d+)?", lambda _: digits, answer, count=1)


def _options(question: Question) -> dict[str, str]:
    """The lettered options in the text of a choice question."""
    found = re.findall(r"(?:^|[\s(])([A-D])[).:] ([^;\n]+)", question.text)
    return {letter: text.strip() for letter, text in found}


def _subject(question: Question) -> str:
    if question.kind == "choice":
        return "the correct answer"
    if found := re.match(r"(?:What|Who) (?:is|are) ([^?:]+)[?:]", question.text):
        return str(found[1])
    if found := re.match(r"How many (\w+(?: \w+)??) (?:are|were|does) ", question.text):
        return f"the number of {found[1]}"
    return "the answer"


def _name(question: Question, value: str) -> str:
    return f"option {value}" if question.kind == "choice" else value


def _shown(question: Question, rng: random.Random) -> str:
    """The answer as a model would write it inside a reply."""
    answer = question.answer
    if question.kind == "choice":
        text = _options(question).get(answer, "")
        forms = [answer, answer, f"Option {answer}"]
        if text:
            forms += [f"{answer}) {text}", f"{answer} ({text})"]
            forms += [f"{answer}: {text}", f"{answer}. {text}"]
        return rng.choice(forms)
    if question.kind == "label":
        return rng.choice((answer, answer, _cap(answer)))
    return answer


def _claim(question: Question, shown: str, rng: random.Random) -> str:
    subject = _subject(question)
    return rng.choice((
        f"{_cap(subject)} is {shown}.",
        f"The answer is {shown}.",
        f"According to the document, {subject} is {shown}.",
        f"Based on the provided text, {subject} is {shown}.",
    ))  # fmt: skip


_ASIDES: dict[str, tuple[str, ...]] = {
    "number": (
        "{Src} also mentions {o}, which relates to a different item.",
        "The figure of {o} is a separate one and does not apply here.",
        "An earlier draft had {o}, but it was superseded.",
        "Note that {o} appears in {src} as well, in another context.",
    ),
    "label": (
        "The label '{o}' is used for another record in {src}.",
        "I also considered '{o}', but the text does not support it.",
        "{Src} uses the word {o} when it describes last year's case.",
        "Nothing in the text points to {o}.",
    ),
    "span": (
        "{o} is mentioned as well, but in a different role.",
        "{Src} refers to {o}, which belongs to an older version.",
        "The text also names {o} in {src}, in another context.",
        "It should not be confused with {o}.",
    ),
    "choice": (
        "Option {o} ({t}) is only mentioned in passing.",
        "{o}) {t} can be ruled out, because {src} says otherwise.",
        "There is a reference to '{t}' in {src}, but it concerns another case, so {o} is wrong.",
        "A reader might think of option {o}, but nothing in the text supports it.",
    ),
}


def _asides(question: Question, rng: random.Random, count: int) -> list[str]:
    """Sentences that mention wrong values without stating them as the answer."""
    options, lines = _options(question), []
    others = rng.sample(question.others, count)
    for template, other in zip(rng.sample(_ASIDES[question.kind], count), others, strict=True):
        src = rng.choice(_SOURCES)
        line = template.format(o=other, t=options.get(other, ""), src=src, Src=_cap(src))
        lines.append(_cap(line))
    return lines


def _spellings(question: Question) -> list[str]:
    """Other ways to write the answer, with its unit, that mean exactly the same."""
    answer, unit = question.answer, question.unit
    if question.kind == "choice":
        text = _options(question).get(answer, "")
        return [f"({answer})", f"{answer})", f"Option {answer}", f"{answer.lower()}) {text}",
                f"choice {answer}", f"[{answer}] {text}"]  # fmt: skip
    if question.kind in ("label", "span"):
        return [f"{answer.upper()}", f"{answer} ({unit})", f"{unit}: {answer}",
                f"{_cap(unit)} = {answer}", f'{unit} "{answer}"']  # fmt: skip
    found = _NUMBER.fullmatch(answer)
    if found is None:
        return [answer]
    currency, digits, scale, suffix = found.groups()
    value, plain = _value(answer), digits.replace(",", "")
    word = _words(int(value)) if value == int(value) and value < 1000 else ""
    if currency and scale:
        symbol, name = _CURRENCY[currency]
        full = f"{value * 1_000_000:,.0f}"
        return [f"{digits} million {name}", f"{symbol}{digits}M", f"{currency} {full}",
                f"{full} {name}", f"{symbol}{digits} million"]  # fmt: skip
    if currency:
        symbol, name = _CURRENCY[currency]
        exact = f"{value:,.2f}"
        swapped = exact.translate(str.maketrans(",.", ".,"))
        return [f"{plain} {name}", f"{symbol}{exact}", f"{swapped} {currency}",
                f"{symbol}{digits}", f"{digits} {currency}", f"{exact} {name}",
                f"{currency}{plain}", f"{swapped.replace('.', ' ')} {symbol}"]  # fmt: skip
    if suffix == "%":
        forms = [f"{digits} percent", f"{digits} per cent", f"{digits} %", f"{digits} pct"]
        if "." in digits:
            return [*forms, f"{digits.replace('.', ',')} %"]
        return [*forms, f"{word} percent", f"{digits}.0%"]
    if suffix:
        noun = suffix.strip()
        forms = [f"{word}{suffix}", f"{word} ({digits}){suffix}", f"{digits} ({word}){suffix}",
                 f"a period of {digits}{suffix}",
                 f"{digits} {noun.capitalize()}"]  # fmt: skip
        if noun == "months" and value % 12 == 0:
            years = int(value) // 12
            forms.append(f"{digits} months ({_words(years)} year{'s' if years > 1 else ''})")
        if noun == "hours":
            forms += [f"{digits}h", f"{digits} hrs"]
        return forms
    forms = [f"{digits} {unit}", f"{plain} {unit}", f"a total of {digits} {unit}",
             digits.replace(",", "\u00a0") + f" {unit}", plain]  # fmt: skip
    return [*forms, word, f"{word} {unit}", f"{digits} ({word})"] if word else forms


# --- right replies ------------------------------------------------------------------------


def _terse(question: Question, rng: random.Random) -> str:
    shown = _shown(question, rng)
    return rng.choice((question.answer, shown, f"{shown}.", f"{question.answer}\n", f" {shown}"))


def _sentence(question: Question, rng: random.Random) -> str:
    shown, subject = _shown(question, rng), _subject(question)
    return rng.choice((
        _claim(question, shown, rng),
        f"{_cap(subject)}, as stated in {rng.choice(_SOURCES)}, is {shown}.",
        f"As per {rng.choice(_SOURCES)}, it's {shown}.",
        f"Sure! {_cap(subject)} is {shown}.",
        f"The document indicates that {subject} is {shown}.",
    ))  # fmt: skip


def _explanation_first(question: Question, rng: random.Random) -> str:
    lines = _asides(question, rng, rng.choice((1, 2, 2, 3)))
    shown, subject = _shown(question, rng), _subject(question)
    opening = rng.choice((
        "The document contains several candidates.",
        f"To answer this, I looked at {rng.choice(_SOURCES)}.",
        "Let's look at the relevant passage.",
        "Great question!",
    ))  # fmt: skip
    end = rng.choice((
        f"Therefore, {subject} is {shown}.",
        f"So the answer is {shown}.",
        f"Hence: {shown}",
        f"In conclusion, {subject} is **{shown}**.",
    ))  # fmt: skip
    return " ".join((opening, *lines)) + rng.choice((" ", "\n\n", "\n")) + end


def _explanation_after(question: Question, rng: random.Random) -> str:
    lines = _asides(question, rng, rng.choice((1, 2)))
    shown = _shown(question, rng)
    start = rng.choice((shown + ".", _claim(question, shown, rng), f"**{shown}**", f"{shown} -"))
    why = rng.choice((
        f"This is stated in {rng.choice(_SOURCES)}.",
        f"See {rng.choice(_SOURCES)} of the document (version 3 of 12 March 2024).",
        f"**Explanation:** I took this from {rng.choice(_SOURCES)}.",
    ))  # fmt: skip
    joint = " " if start.endswith("-") else rng.choice((" ", "\n\n", "\n"))
    return start + joint + " ".join((why, *lines))


def _bold(question: Question, rng: random.Random) -> str:
    shown, subject = _shown(question, rng), _subject(question)
    return rng.choice((
        f"**{shown}**",
        f"{_cap(subject)} is **{shown}**.",
        f"**{_cap(subject)} is {shown}.**",
        f"**{_cap(subject)}:** {shown}",
        f"***{shown}***",
        f"__{shown}__",
        f"<b>{shown}</b>",
        f"According to **{rng.choice(_SOURCES)}**, {subject} is **{shown}**.",
    ))  # fmt: skip


def _quoted(question: Question, rng: random.Random) -> str:
    shown, subject = _shown(question, rng), _subject(question)
    left, right = rng.choice(('""', "''", "\u201c\u201d", "``", "\u00ab\u00bb", "\u201e\u201c"))
    return rng.choice((
        f"{left}{shown}{right}",
        f"{left}{shown}{right}.",
        f"{left}{shown}.{right}",
        f"{_cap(subject)} is {left}{shown}{right}.",
        f"{_cap(rng.choice(_SOURCES))} gives the answer as {left}{shown}{right}.",
        f"> {shown}",
    ))  # fmt: skip


def _json(question: Question, rng: random.Random) -> str:
    key = rng.choice(("answer", "answer", "result", "value"))
    body: dict[str, object] = {}
    why = " ".join(_asides(question, rng, 1))
    extra = rng.choice(("", "", "explanation", "reasoning", "confidence", "source", "question"))
    details = {"explanation": why, "reasoning": why, "confidence": 0.95,
               "source": rng.choice(_SOURCES), "question": question.text}  # fmt: skip
    early = extra in ("reasoning", "question")
    if early:
        body[extra] = details[extra]
    found = _NUMBER.fullmatch(question.answer) if question.kind == "number" else None
    if found and rng.random() < 0.4:
        number = _value(question.answer) * (1_000_000 if found[3] else 1)
        body[key] = int(number) if number == int(number) else float(number)
        if found[1]:
            body["currency"] = found[1]
        elif question.unit:
            body["unit"] = (found[4] or question.unit).strip()
    else:
        body[key] = question.answer if rng.random() < 0.7 else _shown(question, rng)
    if extra and not early:
        body[extra] = details[extra]
    text = json.dumps(body, indent=rng.choice((None, None, 2, 4)), ensure_ascii=False)
    return rng.choice((
        text, text, f"```json\n{text}\n```", f"Here is the result:\n\n```json\n{text}\n```",
        f"```\n{text}\n```", f"```json\n{text}\n```\n\nLet me know if you need anything else!",
    ))  # fmt: skip


def _fence(question: Question, rng: random.Random) -> str:
    shown, tag = _shown(question, rng), rng.choice(("", "", "text", "plaintext", "markdown"))
    block = f"```{tag}\n{shown}\n```"
    return rng.choice((
        block,
        block + "\n",
        f"Here is the answer:\n\n{block}",
        f"{block}\n\nThis is taken from {rng.choice(_SOURCES)}.",
        f"```yaml\nanswer: {question.answer}\nsource: {rng.choice(_SOURCES)}\n```",
        f"`{shown}`",
        f"~~~\n{shown}\n~~~",
    ))  # fmt: skip


def _list(question: Question, rng: random.Random) -> str:
    shown, subject = _shown(question, rng), _cap(_subject(question))
    dot, source = rng.choice("-*\u2022"), rng.choice(_SOURCES)
    aside = _asides(question, rng, 1)[0]
    return rng.choice((
        f"{dot} {shown}",
        f"{dot} Answer: {shown}",
        f"{dot} {subject}: {shown}\n{dot} Source: {source}",
        f"{dot} **{subject}:** {shown}\n{dot} **Source:** {source}\n{dot} **Note:** {aside}",
        f"{dot} Document: reviewed in full\n{dot} Source: {source}\n{dot} Answer: {shown}",
        f"1. {shown}",
        f"Here's what I found:\n\n{dot} **Answer**: {shown}\n{dot} **Where**: {source}",
    ))  # fmt: skip


_LANGUAGES: tuple[str, ...] = (
    "Laut Dokument lautet die Antwort {v}.",
    "Die richtige Antwort ist {v}.",
    "Die Antwort lautet \u201e{v}\u201c (siehe Abschnitt 3).",
    "Gem\u00e4\u00df dem Text ist die Antwort {v} und nicht {o}.",
    "**Antwort:** {v}",
    "D'apr\u00e8s le document, la r\u00e9ponse est {v}.",
    "La bonne r\u00e9ponse est \u00ab {v} \u00bb.",
    "Selon la page 2, il s'agit de {v}, et non de {o}.",
    "R\u00e9ponse : {v}",
    "Seg\u00fan el documento, la respuesta es {v}.",
    "La respuesta correcta es: {v}",
    "Respuesta: {v}. El valor {o} se refiere a otro caso.",
)


def _other_language(question: Question, rng: random.Random) -> str:
    other = rng.choice(question.others)
    shown = _shown(question, rng) if question.kind != "choice" else question.answer
    return rng.choice(_LANGUAGES).format(v=shown, o=other)


def _units(question: Question, rng: random.Random) -> str:
    form = rng.choice(list(dict.fromkeys(_spellings(question))))
    if question.kind in ("label", "span"):
        return rng.choice((form, f"{form}.", f"Based on the document: {form}"))
    return rng.choice((form, _cap(form), f"Answer: {form}", _claim(question, form, rng)))


def _answer_label(question: Question, rng: random.Random) -> str:
    shown = _shown(question, rng)
    tex = question.answer.replace("%", "\\%").replace("&", "\\&")
    boxed = f"\\boxed{{{tex}}}" if len(tex) < 3 else f"\\boxed{{\\text{{{tex}}}}}"
    return rng.choice((
        f"Answer: {shown}",
        f"**Answer:** {shown}",
        f"**Answer**: {shown}",
        f"Final answer: {shown}",
        f"**Final Answer:** **{shown}**",
        f"### Answer\n{shown}",
        f"## Final Answer\n\n**{shown}**",
        f"ANSWER: {shown}",
        f"The final answer is: {shown}",
        f"<answer>{shown}</answer>",
        f"**Final Answer**\n\n\\[\n{boxed}\n\\]",
        f"Final answer: ${boxed}$",
        f"### Answer\n{shown}\n\n### Explanation\n{' '.join(_asides(question, rng, 2))}",
    ))  # fmt: skip


def _reasoning_inline(question: Question, rng: random.Random) -> str:
    shown, subject = _shown(question, rng), _subject(question)
    first, second = _asides(question, rng, 2)
    one, two = (_name(question, other) for other in rng.sample(question.others, 2))
    src = rng.choice(_SOURCES)
    return rng.choice((
        f"Step 1: Find the relevant passage. It is in {src}.\nStep 2: Check the alternatives. "
        f"{first} {second}\nStep 3: Conclude.\n\n{_claim(question, shown, rng)}",
        f"Let me think step by step.\n\n1. Candidates are {one} and {two}, among others.\n"
        f"2. {first}\n3. {second}\n\nSo, {subject} is {shown}.",
        f"<think>\nThe user asks about the document. Could it be {one}? Hmm, no. What about "
        f"{two}? That does not fit either.\n</think>\n\n{shown}",
        f"First, I check {src}. {first} Next, I compare this with the rest. {second} "
        f"Hence, the answer is {shown}.",
        f"**Step 1:** Locate the passage ({src}).\n**Step 2:** Rule out {one} and {two}.\n"
        f"**Step 3:** Give the result.\n\n**Final Answer: {shown}**",
        f"Okay, is it {one}? No, {src} contradicts that. Is it {two}? No again. "
        f"That leaves {_name(question, question.answer)}.\n\nAnswer: {shown}",
    ))  # fmt: skip


def _hedging(question: Question, rng: random.Random) -> str:
    shown, subject = _shown(question, rng), _subject(question)
    return rng.choice((
        f"{_cap(subject)} is most likely {shown}.",
        f"If I read it correctly, {subject} is {shown}.",
        f"I believe the answer is {shown}, although I'm not 100% certain.",
        f"It appears to be {shown}, but please verify this against the original document.",
        f"As far as I can tell from {rng.choice(_SOURCES)}, it should be {shown}.",
        f"Probably {shown}.",
        f"While the wording is a bit unclear, my best reading is {shown}.",
    ))  # fmt: skip


def _apology_first(question: Question, rng: random.Random) -> str:
    shown, claim = _shown(question, rng), _claim(question, _shown(question, rng), rng)
    wrong = _name(question, rng.choice(question.others))
    return rng.choice((
        f"I apologize for the confusion. {claim}",
        f"Sorry about that! {claim}",
        f"My apologies for the earlier mistake: I said {wrong}. The correct answer is {shown}.",
        f"You're right, and I'm sorry for the oversight. It is {shown}, not {wrong}.",
        f"I'm sorry for the delay. Here is the answer: {shown}",
        f"Unfortunately, I can't open attachments, but based on the text you pasted: {shown}",
    ))  # fmt: skip


def _repeats_question(question: Question, rng: random.Random) -> str:
    shown, text = _shown(question, rng), question.text
    forms = [
        f"{text}\n\n{shown}",
        f"Question: {text}\nAnswer: {shown}",
        f"**Question:** {text}\n\n**Answer:** {shown}",
        f'You asked: "{text}"\n\n{_claim(question, shown, rng)}',
        f"{text}\n\n{_claim(question, shown, rng)}",
    ]
    if question.kind != "choice":
        forms += [f"Q: {text}\nA: {shown}", f"> {text}\n\n{shown}", f"**{text}** {shown}"]
    return rng.choice(forms)


_BUILDERS: dict[str, Callable[[Question, random.Random], str]] = {
    "terse": _terse, "sentence": _sentence, "explanation_first": _explanation_first,
    "explanation_after": _explanation_after, "bold": _bold, "quoted": _quoted, "json": _json,
    "fence": _fence, "list": _list, "other_language": _other_language, "units": _units,
    "answer_label": _answer_label, "reasoning_inline": _reasoning_inline, "hedging": _hedging,
    "apology_first": _apology_first, "repeats_question": _repeats_question,
}  # fmt: skip


def reply(question: Question, manner: str, rng: random.Random) -> str:
    """A realistic right reply of a chat model to the question, in the given manner."""
    return _BUILDERS[manner](question, rng)


# --- wrong replies ------------------------------------------------------------------------

# Each row is one form: the kinds it fits (first letters) and its phrasings. {a} is the right
# answer, {o} and {p} are wrong ones, {x}, {y} and {z} are these three in a random order; {av}
# and so on are the bare values ('B', where {a} is 'option B'); {s} is what is asked for.
_WRONG: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("nlsc", ("I could not find this information in the document.",
              "I'm afraid the text does not contain enough information to answer this.",
              "I've gone through the whole document, but this is not mentioned anywhere.")),
    ("nlsc", ("Answer: Not specified", "N/A", "Unknown", "**Answer:** not mentioned", "null")),
    ("nlsc", ("I'm sorry, but I can't assist with that request.",
              "I can't share confidential business information.",
              "As an AI language model, I cannot give legal or financial advice.")),
    ("nlsc", ("I don't see any document attached. Could you please paste the text?",
              "It seems that the file did not upload. Please try again.")),
    ("nlsc", ("Could you clarify which document you mean? I see {x} in one and {y} in the other.",
              "Do you mean the original or the amended version? They differ: {x} versus {y}.")),
    ("nlsc", ("It is either {x} or {y}.", "{xv} or {yv}", "{xv} / {yv}",
              "It could be {x}, but it could just as well be {y}.",
              "**Answer:** {xv} or {yv}, depending on the interpretation")),
    ("nlsc", ("The document mentions {x}, {y} and {z}.", "{xv}, {yv}, {zv}",
              "Several are mentioned: {xv}, {yv} and {zv}. It is not clear which one is meant.")),
    ("nlsc", ("I found these candidates:\n\n- {xv}\n- {yv}\n- {zv}\n\nWhich one do you need?",
              "- {xv}\n- {yv}\n- {zv}",
              "Possible answers:\n1. {xv}\n2. {yv}\n3. {zv}")),
    ("nlsc", ("| Place | Candidate |\n|---|---|\n| page 2 | {xv} |\n| page 5 | {yv} |\n\n"
              "The document does not say which of the two applies.",)),
    ("nlsc", ("If the amendment was signed, it is {a}; if not, it is {o}. The document does not "
              "say whether it was signed.",
              "Assuming the first version applies, it would be {a}. Under the second, {o}. "
              "I can't tell which applies.")),
    ("nlsc", ("Page 2 says {x}, while page 5 says {y}. These contradict each other, so no "
              "definite answer is possible.",)),
    ("nlsc", ("{S} is {o}, not {a}.", "It is {o} rather than {a}.", "Not {a} but {o}.",
              "**{ov}** (not {av})", "Answer: {ov}, not {av}")),
    ("nlsc", ("It is definitely not {a}.", "{A} is incorrect.", "Anything but {a}.",
              "I can only tell you that {a} is wrong.", "Some readers might say {a}, but that "
              "is a mistake.")),
    ("nlsc", ("Previously given as {a}, now {o}.",
              "An earlier draft said {a}; the final version says {o}.",
              "{A} was replaced by {o} in the final version, so the answer is {ov}.")),
    ("nlsc", ("Answer: {av}\n\nWait, that is not right. Let me check again.\n\n"
              "Corrected answer: {ov}",
              "{av}... no, sorry, I misread that. It's {ov}.",
              "At first I thought {a}, but on closer reading it is {o}.")),
    ("nlsc", ("~~{av}~~ **{ov}**",)),
    ("nlsc", ("You suggested {a}, but the document says {o}.",
              "Is it {a}? No. It is {o}.")),
    ("nlsc", ("Step 1: The text mentions {a}.\nStep 2: It belongs to another record, so it is "
              "ruled out.\nStep 3: What remains is {o}.\n\nFinal answer: {ov}",
              "<think>\nMaybe {a}? No, that one is about last year. So {o}.\n</think>\n\n{ov}",
              "<think>\nThe text says {a}, I think. But I was told to be careful.\n</think>\n\n"
              "I cannot determine this from the text.")),
    ("nlsc", ("Answer: {ov} (do not confuse it with {av}, which belongs to another record)",
              "{ov}. Note that {a} is mentioned in the annex, but it concerns another case.")),
    ("nlsc", ("Please see section 4.2 of the document.", "This is explained in the annex.",
              "You will find it in the table on the last page.")),
    ("nlsc", ("Answer: [insert answer here]", "<answer></answer>", "**Answer:** ______",
              "```json\n{{\"answer\": \"\"}}\n```", "```\n\n```", "")),
    ("nlsc", ("To find {s}, we look at the relevant passages. The first passage mentions {o}, "
              "and the second one",
              "Sure! Based on the document you provided, the answer is",
              "Let me analyze the document step by step.\n\n**Step 1:** Identify the")),
    ("nlsc", ('{{"answer": null, "reason": "not stated in the document"}}',
              '{{"error": "insufficient information"}}',
              '```json\n{{"answer": "unknown", "confidence": 0.1}}\n```')),
    ("nlsc", ('{{"candidates": ["{xv}", "{yv}", "{zv}"], "answer": null}}',
              '{{"answer": ["{xv}", "{yv}"], "note": "could not decide between these"}}')),
    ("nlsc", ('{{"answer": "{ov}", "rejected": ["{av}", "{pv}"]}}',
              '{{\n  "reasoning": "{A} is mentioned but does not apply.",\n'
              '  "answer": "{ov}"\n}}')),
    ("nlsc", ("Lo siento, no puedo encontrar esa informaci\u00f3n en el documento.",
              "Diese Angabe ist im Dokument leider nicht enthalten.",
              "Die Antwort lautet {ov}, nicht {av}.",
              "La r\u00e9ponse n'est pas {av} mais {ov}.",
              "O bien {xv} o bien {yv}; el documento no lo aclara.")),
    ("nlsc", ("I can't determine this. Although {x} and {y} appear in the text, neither is "
              "clearly tied to what you ask.",)),
    ("nlsc", ("The document covers this topic in some detail and lists the main conditions. "
              "Overall it is well structured and clear.",
              "Thank you for your question! I'd be happy to help you with this document.")),
    ("n", ("It is somewhere between {lo} and {hi}.", "{lo} to {hi}", "Range: {lo} - {hi}")),
    ("n", ("It is well above {a}; the exact figure is not given.",
           "Clearly less than {a}, but no exact figure is stated.",
           "It must be at least double {a}.")),
    ("n", ("Adding {a} and {o} gives {sum}. The answer is {sum}.",
           "{a} + {o} = {sum}\n\n**Final answer: {sum}**")),
    ("n", ("{S} is -{a}.", "{S} is minus {a}, so it is negative.", "Negative: minus {a}.")),
    ("n", ("The reference is DOC-{raw}-B; the figure itself is not stated.",
           "See ticket #{raw}X for this. The document gives no figure.")),
    ("n", ("The digits are illegible in the scan; only the unit ({unit}) can be read.",
           "The text gives it in {unit}, but the number itself is blacked out.")),
    ("l", ("not {a}", "**Not {a}**", "Answer: not {a}", "It has been found to be not {a}.",
           "{S} is not {a}.", "No longer {a}.", "Not {a} yet.")),
    ("l", ("{S} cannot be described as '{a}'.", "Far from {a}.", "By no means {a}.",
           "Calling it {a} would be wrong.", "Neither {a} nor {o}.")),
    ("l", ("{S} would be '{a}' if the missing evidence had been provided; it was not.",
           "It was nearly classified as {a}, but ended up as {o}.",
           "The author first proposed '{a}', but the reviewer decided on '{o}'.")),
    ("l", ("{xv}/{yv}", "Somewhere between {x} and {y}", "Partly {x}, partly {y}",
           "Both {x} and {y} would fit.")),
    ("s", ("It is a {unit} named in the document.", "The {unit} is named in section 2.",
           "The same {unit} as in last year's version.", "The second {unit} in the list.")),
    ("s", ("{O}, which replaces {a}", "{ov}, which is not to be confused with {av}",
           "The name begins like {ov}, but the rest of the line is unreadable.")),
    ("c", ("None of the options is correct.", "All of the above", "None of A, B, C or D.",
           "E", "E) none of the above", "A, B, C, D")),
    ("c", ("{xv} and {yv}", "Both {x} and {y} are correct.", "{xv}{yv}", "{xv}, {yv} and {zv}")),
    ("c", ("Options {av} and {ov} can be ruled out, so one of the other two must be right.",
           "I would eliminate {av} first, but I can't choose among the rest.")),
    ("c", ("Appendix {av} supports this: the correct option is {ov}.",
           "Plan {av} is mentioned in the text, and it says that {ov}) is correct.",
           "Question {av}, answer: {ov}")),
    ("c", ("{ot}", "The text says: {ot}.", "The answer is '{ot}'.", "{ov}) {ot}")),
    ("c", ("A careful reading suggests that none of these fits. A second look does not help.",
           "This is a hard one. I can't pick a letter with confidence.")),
)  # fmt: skip

_UNIT_SWAPS = {"EUR": "USD", "USD": "EUR", "GBP": "EUR", "days": "months", "months": "years",
               "hours": "weeks", "%": " basis points"}  # fmt: skip


def _fields(question: Question, rng: random.Random) -> dict[str, str]:
    answer = question.answer
    other, second = rng.sample(question.others, 2)
    mixed = rng.sample((answer, other, second), 3)
    while answer not in mixed[:2]:
        mixed = rng.sample((answer, other, second), 3)
    fields = {"s": _subject(question), "S": _cap(_subject(question)), "unit": question.unit}
    for key, value in zip("aopxyz", (answer, other, second, *mixed), strict=True):
        fields[key], fields[key + "v"] = _name(question, value), value
    fields["A"], fields["O"] = _cap(fields["a"]), _cap(fields["o"])
    fields["ot"] = _options(question).get(other, other)
    if question.kind == "number":
        fields["lo"], fields["hi"] = sorted((answer, other), key=_value)
        fields["sum"] = _digits(answer, f"{_value(answer) + _value(other):,}")
        fields["raw"] = re.sub(r"\D", "", answer)
    return fields


def _restate(question: Question, wrong: str, rng: random.Random, manner: str = "") -> str:
    """A reply that states `wrong`; where it mentions other values, they may be the right one."""
    others = [other for other in question.others if other != wrong]
    if rng.random() < 0.5:
        others = [question.answer, *others]
    while len(others) < 3:
        others.append(question.answer if question.answer not in others else others[0])
    stated = replace(question, answer=wrong, others=tuple(others))
    return reply(stated, manner or rng.choice(MANNERS), rng)


def _longer_number(question: Question, rng: random.Random) -> str:
    """The right digits inside a longer number."""
    found = re.search(r"[\d,]+(?:\.\d+)?", question.answer)
    digits = found[0] if found else "0"
    whole, _, part = digits.replace(",", "").partition(".")
    before = f"{rng.randint(1, 9)}{whole}" + (f".{part}" if part else "")
    after = f"{whole}{part}{rng.randint(0, 9)}"
    text = rng.choice((before, after))
    wrong = _digits(question.answer, rng.choice((text, f"{Decimal(text):,}")))
    return _restate(question, wrong, rng, rng.choice(("terse", "sentence", "bold", "fence",
                    "explanation_after", "answer_label", "json", "quoted")))  # fmt: skip


def _wrong_scale(question: Question, rng: random.Random) -> str:
    """The right digits at another power of ten."""
    value = _value(question.answer)
    shifted = [value * 10, value * 100, value / 10, value / 100]
    options = [_digits(question.answer, f"{number.normalize():,f}") for number in shifted]
    if "million" in question.answer:
        options += [question.answer.replace("million", word) for word in ("billion", "thousand")]
        options.append(question.answer.removesuffix(" million"))
    elif question.unit in _CURRENCY:
        options += [f"{question.answer} million", f"{question.answer} thousand"]
    wrong = rng.choice(options)
    return _restate(question, wrong, rng, rng.choice(("terse", "sentence", "bold", "hedging",
                    "answer_label", "explanation_first")))  # fmt: skip


def _wrong_unit(question: Question, rng: random.Random) -> str:
    """The right number with another unit or currency."""
    unit = question.unit
    swapped = _UNIT_SWAPS.get(unit)
    wrong = question.answer.replace(unit, swapped) if swapped else f"{question.answer}%"
    return _restate(question, wrong, rng, rng.choice(("terse", "sentence", "bold", "fence")))


def _all_options(question: Question, rng: random.Random) -> str:
    """Discusses every option and picks a wrong one."""
    wrong, options = rng.choice(question.others), _options(question)
    verdicts = {
        letter: "not supported by the text" if letter != wrong else "matches the wording"
        for letter in options
    }
    lines = [f"- {letter}) {options[letter]}: {verdicts[letter]}" for letter in options]
    end = rng.choice((f"So the answer is {wrong}.", f"**Answer: {wrong}**", f"I choose {wrong}."))
    return "Let's go through the options:\n\n" + "\n".join(lines) + f"\n\n{end}"


def _half(question: Question, rng: random.Random) -> str:
    """Only the words that the right name shares with a wrong one, said to be incomplete."""
    words = question.answer.split()
    shared = [w for w in words if any(w in other.split() for other in question.others)]
    part = " ".join(shared) if 0 < len(shared) < len(words) else question.answer[:3]
    return rng.choice((
        f"{part}...",
        f"Something with '{part}' in it; the rest is illegible.",
        f"The {question.unit} reads '{part} [illegible]'; there are several of that kind.",
    ))  # fmt: skip


def _mixture(question: Question, rng: random.Random) -> str:
    """A name put together from the right one and a wrong one."""
    words = question.answer.split()
    last = rng.choice([other.split()[-1] for other in question.others])
    if len(words) == 1 or last == words[-1]:
        return _restate(question, rng.choice(question.others), rng)
    return _restate(question, " ".join((*words[:-1], last)), rng, rng.choice(("terse", "bold",
                    "sentence", "answer_label", "fence")))  # fmt: skip


def _stated_other(question: Question, rng: random.Random) -> str:
    """States one of the wrong values in any of the manners."""
    return _restate(question, rng.choice(question.others), rng)


def _echo(question: Question, rng: random.Random) -> str:
    """Only the question again."""
    text = question.text
    return rng.choice((text, f"Question: {text}\nAnswer:", f"You are asking: {text}"))


_WRONG_BUILDERS: tuple[tuple[str, Callable[[Question, random.Random], str]], ...] = (
    ("nlsc", _stated_other), ("nlsc", _stated_other), ("nlsc", _stated_other), ("nlsc", _echo),
    ("n", _longer_number), ("n", _longer_number), ("n", _wrong_scale), ("n", _wrong_unit),
    ("c", _all_options), ("c", _all_options), ("s", _half), ("s", _mixture),
)  # fmt: skip


def wrong_reply(question: Question, rng: random.Random) -> str:
    """A realistic wrong reply of a chat model: it does not give the right answer."""
    letter = question.kind[0]
    rows = [row for kinds, row in _WRONG if letter in kinds]
    builders = [builder for kinds, builder in _WRONG_BUILDERS if letter in kinds]
    pick = rng.randrange(len(rows) + len(builders))
    if pick >= len(rows):
        return builders[pick - len(rows)](question, rng)
    return rng.choice(rows[pick]).format(**_fields(question, rng))


def main() -> None:
    """Print replies to read: 3 right ones per manner and type, then 40 wrong ones."""
    rng = random.Random(11)
    for manner in MANNERS:
        for kind in TYPES:
            for question in rng.sample(QUESTIONS[kind], 3):
                print(f"--- {manner} / {kind} [{question.answer}]")
                print(reply(question, manner, rng))
    for number in range(40):
        question = rng.choice(QUESTIONS[TYPES[number % len(TYPES)]])
        print(f"--- WRONG / {question.kind} [{question.answer}]")
        print(wrong_reply(question, rng))


if __name__ == "__main__":
    main()
