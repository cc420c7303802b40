"""Mutations of base questions: two texts that look alike and whose answers differ.

A slot ``{kind:word}`` in a base question is filled with its word in the stored text, and with
another of its kind in the asked one. ``{a:…}`` and ``{b:…}`` change places.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

__all__ = ["QUESTIONS", "filled", "traps"]

Trap = tuple[str, str, str]  # asked, stored, kind

_WORDS = """
num: 2|3|4|6|7|9|11|12|15|18|20|25|40|60|75|99|120|150|365|480|1000|2500
word: two|three|four|five|six|seven|eight|nine|ten|twelve|twenty
ord: 2nd|3rd|5th|7th|9th|12th|18th|19th|21st
year: 1492|1789|1815|1848|1901|1914|1929|1945|1969|1989|1999|2008|2015|2021
month: January|February|March|April|June|July|August|October|December
version: 1.0|2.7|3.8|3.10|3.11|4.2|5.0|10.1|12.4
length: miles|kilometers|meters|feet|inches|yards|centimeters
mass: pounds|kilograms|grams|ounces|tons
time: seconds|minutes|hours|days|weeks|months|years
volume: liters|gallons|cups|pints|milliliters|tablespoons
heat: Celsius|Fahrenheit|Kelvin
data: kilobytes|megabytes|gigabytes|terabytes
money: dollars|euros|pounds|yen|rupees
country: France|Germany|Austria|Australia|Spain|Sweden|Switzerland|Brazil|Iran|Iraq|Niger
country: Nigeria|North Korea|South Korea|Mali|Malta|Slovakia|Slovenia
city: London|Paris|Berlin|Rome|Madrid|Tokyo|New York|Boston|Lisbon|Vienna
person: Mozart|Beethoven|Einstein|Newton|Darwin|Napoleon|Abraham Lincoln|Henry James
person: William James|John Adams|John Quincy Adams
tongue: Spanish|Portuguese|French|Italian|German|Dutch|Danish|Latin|Greek
code: Python|Java|JavaScript|C|C++|C#|Rust|Ruby|Go|Kotlin|PHP|Perl
system: Ubuntu|Fedora|Debian|Windows|macOS|Android
store: MySQL|PostgreSQL|SQLite|Redis|MongoDB|Oracle
firm: Apple|Google|Microsoft|Tesla|Nvidia|Amazon|Netflix|Spotify
drug: ibuprofen|aspirin|paracetamol|insulin|metformin|amoxicillin
animal: dogs|cats|horses|rabbits|parrots|hamsters
food: rice|quinoa|salmon|chicken|lentils|broccoli
form: essay|poem|haiku|short story|speech|song
format: JSON|CSV|XML|YAML
fruit: banana|apple|mango|pear|kiwi
play: guitar|piano|violin|drums|flute
sport: tennis|soccer|basketball|rugby|cricket|golf
quote: "good morning"|"good night"|"thank you"|"see you later"|"excuse me"
wh: How|When|Where|Why
sign: +|-|*|/
made: wugglet|snorfle|zentrix|blorptang|quixel
"""
_POOLS: dict[str, list[str]] = {}
for _line in _WORDS.split("\n")[1:-1]:
    _kind, _, _words = _line.partition(": ")
    _POOLS.setdefault(_kind, []).extend(_words.split("|"))
_NAMES = {
    "num": "number", "word": "number", "ord": "number", "version": "number", "year": "date",
    "month": "date", "length": "unit", "mass": "unit", "time": "unit", "volume": "unit",
    "heat": "unit", "data": "unit", "money": "unit", "neg": "negation", "sign": "operator",
    "a": "order", "b": "order", "wh": "question", "made": "unknown", "quote": "quoted",
    "mod": "modality",
}  # fmt: skip
_SLOT = re.compile(r"\{(\w+):([^}]*)\}")

QUESTIONS = [line for line in """
What is {num:15}% of {num:200}?
Convert {num:10} {length:miles} to meters
How many {length:feet} are in a furlong?
How many {mass:grams} are in a stone?
How many {volume:cups} are in a barrel?
Set a timer for {num:5} {time:minutes}
Remind me in {num:20} {time:minutes} to stretch
What is the boiling point of ethanol in {heat:Celsius}?
What is the melting point of {neg:iron/lead} in {heat:Celsius}?
How many {data:megabytes} fit on a DVD?
How much does a barrel of oil cost in {money:dollars}?
Write a {num:500} word {form:essay} about climate change
Give me {num:3} ideas for a birthday party
What is the {ord:10th} prime number?
Who was the {ord:16th} president of the {country:France}?
What does HTTP status {num:404} mean?
How do I upgrade from Python {version:3.9} to {version:3.12}?
What is {word:seven} times {num:8}?
What is {num:81} divided by {num:9}?
What is {num:17} {neg:plus/minus} {num:5}?
Calculate {num:14} {sign:+} {num:30}
Solve x {sign:+} 5 = {num:13}
What happened on 4 {month:July} {year:1776}?
Who won the World Cup in {year:2018}?
What were the top movies of {year:1994}?
Show sales for {month:January} {year:2020}
What was the population of {city:Boston} in {year:1950}?
Who ruled {country:Spain} in {year:1600}?
What is the weather like in {city:Madrid} in {month:May}?
Which holidays does {country:Sweden} have in {month:May}?
What is the capital of {country:Austria}?
What is the population of {country:Germany}?
What currency is used in {country:Switzerland}?
Who is the head of state of {country:Niger}?
Do I need a visa for {country:Iran}?
What language is spoken in {country:Mali}?
How large is {country:Slovenia}?
What is the flight time from {a:London} to {b:New York}?
How do I travel from {a:Vienna} to {b:Rome} by train?
Convert {a:USD} to {b:EUR}
Convert {a:XML} to {b:JSON}
Translate from {a:French} to {b:German}
How do I migrate from {a:MySQL} to {b:PostgreSQL}?
Is {a:Python} faster than {b:JavaScript}?
Is {a:gold} heavier than {b:lead}?
Is {a:Berlin} older than {b:Munich}?
Did {a:Germany} invade {b:Poland}?
Did {a:Rome} defeat {b:Carthage}?
Draft an email from {a:Alice} to {b:Bob}
Write a letter from {a:Anna} to {b:Peter}
What is {a:20} divided by {b:4}?
What is {a:50} minus {b:8}?
What is {a:2} to the power of {b:5}?
How do I copy files from {a:Windows} to {b:Linux}?
Can a {a:dog} infect a {b:cat}?
Why do {a:cats} chase {b:dogs}?
Move money from {a:checking} to {b:savings}
How do I get from {a:Heathrow} to {b:Gatwick}?
How do I {neg:enable/disable} two-factor authentication?
Which foods are {neg:safe/not safe} for {animal:dogs}?
How do I turn {neg:on/off} dark mode?
List countries that are {neg:in/not in} the EU
How can I {neg:increase/decrease} my blood pressure?
What should I do {neg:before/after} surgery?
Show me hotels {neg:with/without} a pool
Why {neg:should/shouldn't} I use Kubernetes?
How do I {neg:add/remove} a user?
What is the {neg:maximum/minimum} dose of {drug:paracetamol}?
How do I {neg:encrypt/decrypt} a file with GPG?
What are the {neg:advantages/disadvantages} of remote work?
How do I {neg:lock/unlock} my phone?
How do I {neg:mute/unmute} a chat?
How do I {neg:install/uninstall} {firm:Spotify}?
How do I {neg:subscribe to/unsubscribe from} the newsletter?
Is it {neg:legal/illegal} to record a phone call in {country:Germany}?
What are {neg:healthy/unhealthy} snacks?
How do I {neg:open/close} a savings account?
How do I {neg:accept/decline} a job offer?
What are the {neg:strengths/weaknesses} of the Roman army?
Why do people {neg:like/dislike} jazz?
What is the {neg:highest/lowest} mountain in {country:Austria}?
Who was the {neg:first/last} king of {country:France}?
How do I {neg:gain/lose} weight?
How do I {neg:start/stop} a timer?
How can I {neg:speed up/slow down} composting?
How do I {neg:show/hide} line numbers?
How do I {neg:connect/disconnect} my headphones?
Why did the team {neg:win/lose} the final?
Is it {neg:good/bad} to eat late?
What are the {neg:pros/cons} of leasing a car?
How do I {neg:tighten/loosen} a bolt?
How do I {neg:import/export} contacts?
How do I {neg:upload/download} a photo?
How do I {neg:zoom in/zoom out} on a map?
Sort the names in {neg:ascending/descending} order
Is the museum {neg:open/closed} on holidays?
Plants that {neg:need/don't need} sun
Recipes that {neg:contain/don't contain} gluten
Can I eat {fruit:mango} {neg:with/without} the peel?
What are the side effects of {drug:ibuprofen}?
Can I take {drug:aspirin} with coffee?
How does {drug:insulin} work?
How long does {drug:amoxicillin} stay in the body?
Can {animal:dogs} eat {fruit:banana}?
How long do {animal:horses} live?
Why do {animal:cats} shed hair?
How do I cook {food:rice}?
How long do I steam {food:broccoli}?
How many calories are in {food:lentils}?
How many calories does a {fruit:pear} have?
How do I grow {fruit:kiwi} from seed?
Who is the CEO of {firm:Apple}?
What is the stock price of {firm:Tesla}?
When was {firm:Microsoft} founded?
How do I cancel my {firm:Netflix} subscription?
When was {person:Mozart} born?
What did {person:Newton} discover?
Tell me about {person:John Adams}
Where did {person:Darwin} study?
How did {person:Napoleon} die?
How do I install Docker on {system:Ubuntu}?
How do I take a screenshot on {system:Windows}?
How do I list open ports on {system:Debian}?
How do I reverse a list in {code:Python}?
Write hello world in {code:C}
How do I read a file in {code:Java}?
What is a closure in {code:JavaScript}?
How do I sort an array in {code:Ruby}?
How do I parse a date in {code:Go}?
How do I write unit tests in {code:C#}?
How do I back up {store:MySQL}?
How do I create an index in {store:SQLite}?
How do I connect to {store:Redis} from {code:Python}?
Translate {quote:"good morning"} to {tongue:Spanish}
How do you say {quote:"thank you"} in {tongue:Dutch}?
How do I say water in {tongue:Danish}?
Answer in {tongue:German}: what is love?
Export my data as {format:CSV}
Give me the menu as {format:JSON}
How do I validate {format:XML}?
Write a {form:poem} about the sea
Write a {form:haiku} for my {neg:mother/father}
Summarize Hamlet in {num:3} sentences
Summarize Hamlet in one {neg:sentence/paragraph}
Explain gravity to a {neg:child/physicist}
Write a {neg:formal/informal} email to my landlord
How do I learn {play:guitar}?
How much does a {play:piano} weigh?
How old should a child be to start {play:violin}?
What are the rules of {sport:tennis}?
How many players are on a {sport:rugby} team?
How long is a {sport:basketball} match?
{wh:How} do I pay my rent?
{wh:Where} do penguins sleep?
{wh:When} did the empire fall?
{mod:Can/Should} I take antibiotics with milk?
{mod:Must/May} I file taxes as a student?
Do {mod:all/some} birds fly?
What is {mod:your/my} name?
{mod:Will/Did} the company hire interns?
Who {mod:is/was} the coach of the team?
What are {mod:his/her} symptoms?
Who {mod:can/must} sign the contract?
How do I delete {mod:one photo/all photos}?
Why do {mod:most/all} startups fail?
Is it {mod:always/sometimes} necessary to preheat the oven?
{mod:Can/Why can't} I stream the match?
Is a score of {neg:at least/at most} {num:60} needed?
List employees with {neg:more than/less than} {num:5} sick days
Show houses {neg:over/under} {num:300} square {length:meters}
Find values {neg:greater/smaller} than {num:42}
Rent {neg:above/below} {num:1000} {money:euros}
How far is the Moon in {length:kilometers}?
What is my BMI if I weigh {num:70} {mass:kilograms}?
Price of gold per {mass:ounce}
Is {num:5} {mass:grams} of salt too much?
How long is {num:10000} {time:seconds}?
How much is {num:20} {money:euros} in francs?
How many {time:hours} are in a fortnight?
Bake for {num:45} {time:minutes} at {num:180} degrees
Give me a {num:7} day itinerary for {city:Rome}
Where can I park in {city:Lisbon}?
What time zone is {city:Boston} in?
Best restaurants near the station in {city:Paris}
How do I get a library card in {city:Berlin}?
How do I clean a {made:wugglet}?
What is a {made:quixel}?
How do I configure the {made:zentrix} plugin?
My {made:snorfle} stopped charging
Where can I buy a {made:blorptang}?
""".splitlines() if line]  # fmt: skip


def traps(seed: int = 7) -> Iterator[Trap]:
    """All of them, more than a thousand; the same each time."""
    rng = random.Random(seed)
    for question in QUESTIONS:
        yield from _mutations(question, rng)
        yield from _odd(filled(question))
    for question in QUESTIONS[::4]:
        yield from _long(filled(question))


def filled(question: str, slot: int = -1, word: str = "") -> str:
    """The question with its own words, but ``word`` in the one slot."""
    number = -1

    def fill(match: re.Match[str]) -> str:
        nonlocal number
        number += 1
        if number == slot:
            return word
        return match[2].split("/")[0] if match[1] in ("neg", "mod") else match[2]

    return _SLOT.sub(fill, question)


def _mutations(question: str, rng: random.Random) -> Iterator[Trap]:
    stored = filled(question)
    slots = _SLOT.findall(question)
    if ("a" in dict(slots)) and ("b" in dict(slots)):
        first, second = dict(slots)["a"], dict(slots)["b"]
        swapped = question.replace("{a:" + first + "}", second).replace("{b:" + second + "}", first)
        yield swapped, stored, "order"
        return
    for number, (kind, word) in enumerate(slots):
        if kind in ("neg", "mod"):
            others = [word.split("/")[1]]
        else:
            others = [w for w in _POOLS[kind] if w.casefold() != word.casefold()]
            others = rng.sample(others, min(5, len(others)))
        for other in others:
            if _plain(other) != _plain(word):
                yield filled(question, number, other), stored, _NAMES.get(kind, "name")


def _plain(word: str) -> str:
    return word.casefold().removesuffix("s")


def _odd(stored: str) -> Iterator[Trap]:
    """Signs that an embedder drops or folds, and letters that only look the same."""
    yield stored.rstrip("?") + " 👍", stored.rstrip("?") + " 👎", "emoji"
    for latin, cyrillic in (("a", "\u0430"), ("e", "\u0435"), ("o", "\u043e")):
        if latin in stored:
            yield stored.replace(latin, cyrillic, 1), stored, "script"
    yield stored.replace(" ", " \u200b", 1), stored, "script"
    yield stored + " 谢谢", stored, "script"


def _long(stored: str) -> Iterator[Trap]:
    """Texts that differ past an embedder's window only."""
    filler = "I have thought about it for some days and asked my friends what they think. " * 20
    yield f"{filler}{stored} Answer yes.", f"{filler}{stored} Answer no.", "window"
