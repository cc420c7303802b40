"""Closed classes of words: those a grammar lists, not those a dictionary does."""

from __future__ import annotations

from typing import Final

__all__ = [
    "ADJECTIVES", "ATTRIBUTES", "AUXILIARIES", "CURRENCIES", "FOREIGN", "FUNCTION", "IRREGULAR",
    "MODALS", "MONTHS", "NEGATIONS", "NUMBERS", "ORDINALS", "PREPOSITIONS", "QUANTIFIERS",
    "SCALES", "UNITS", "WEEKDAYS", "WH", "word_set",
]  # fmt: skip


def word_set(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


def _table(text: str) -> dict[str, str]:
    """``a b c: d`` lines as {a: d, b: d, c: d, d: d}."""
    found: dict[str, str] = {}
    for line in text.strip().splitlines():
        words, _, value = line.partition(":")
        found |= dict.fromkeys(words.split(), value.strip())
        found[value.strip()] = value.strip()
    return found


WH: Final = word_set("what which who whom whose when where why how")
PREPOSITIONS: Final = word_set(
    """to from into onto in on at by for of with within without about against over under above
    below before after since until till during through via than between among toward towards
    inside outside upon per despite except as like off behind near across along around"""
)
AUXILIARIES: Final = word_set(
    """am is are was were be been being do does did done doing has have had having can could will
    would shall should may might must cannot"""
)
FUNCTION: Final = (
    word_set(
        """a an the this that these those there here it its i me my mine myself we us our ours you
    your yours yourself he him his she her hers they them their theirs one ones s and or but nor so
    if then else because while when where also too very much such ok well yes etc eg ie not no
    never none nobody nothing neither any some ever even just only both either all every each
    once yet whether though although up out down away let most more less least"""
    )
    | PREPOSITIONS
    | AUXILIARIES
    | WH
) - {"without", "before", "after", "against", "except", "until", "since", "despite", "like"}
NEGATIONS: Final = word_set(
    """not no never none nobody nothing neither nor cannot without hardly except excluding
    non lacking"""
)
QUANTIFIERS: Final = _table("""
every each entire whole: all
most: most
only solely exclusively: only
both: both
either: either
always: always
sometimes occasionally: sometimes
usually normally mostly: usually
rarely seldom: rarely
few little: few
more: more
less fewer: less
least: least
""")
MODALS: Final = {
    "can": "can", "could": "can", "may": "can", "might": "can", "cannot": "can",
    "should": "should", "ought": "should", "must": "must", "shall": "should",
}  # fmt: skip
MONTHS: Final = _table("""
jan: january
feb: february
mar: march
apr: april
may: may
jun: june
jul: july
aug: august
sep sept: september
oct: october
nov: november
dec: december
""")
WEEKDAYS: Final = word_set("monday tuesday wednesday thursday friday saturday sunday")
UNITS: Final = _table("""
km kms kilometre kilometres kilometers kilometer: kilometer
metre metres meters: meter
cm centimetre centimetres centimeters: centimeter
mm millimetre millimetres millimeters: millimeter
mi miles: mile
ft feet: foot
inches: inch
yd yards: yard
kg kgs kilo kilos kilograms kilogramme: kilogram
gram gr grams gramme: gram
mg milligrams: milligram
mcg micrograms: microgram
lb lbs pounds: pound
oz ounces: ounce
tonne tonnes tons: ton
l litre litres liters: liter
ml millilitre millilitres milliliters: milliliter
cl centilitre centiliters: centiliter
gal gallons: gallon
pt pints: pint
qt quarts: quart
tbsp tablespoons: tablespoon
tsp teaspoons: teaspoon
cups: cup
celsius centigrade: celsius
fahrenheit: fahrenheit
kelvin: kelvin
degrees: degree
sec secs seconds: second_of_time
min mins minutes: minute
hr hrs hours: hour
days: day
weeks: week
months: month
yr yrs years: year
decades: decade
ms milliseconds: millisecond
mph: mph
kmh kph: kmh
mpg: mpg
hz hertz: hertz
khz: khz
mhz: mhz
ghz: ghz
bits: bit
bytes: byte
kb kilobyte kilobytes: kilobyte
mb megabyte megabytes: megabyte
gb gigabyte gigabytes: gigabyte
tb terabyte terabytes: terabyte
w watts: watt
kw kilowatts: kilowatt
kwh: kwh
volts: volt
amps: amp
calories: calorie
kcal: kcal
joules: joule
acres: acre
hectares: hectare
percent pct: percent
dollars: dollar
cents: cent
euros: euro
usd: usd
eur: eur
gbp: gbp
jpy: jpy
yen: yen
rupees: rupee
bc bce: bc
ad ce: ad
""")
CURRENCIES: Final = {"$": "dollar", "€": "euro", "£": "pound", "¥": "yen", "%": "percent"}
SCALES: Final = {
    "hundred": 100, "thousand": 1000, "k": 1000, "million": 10**6, "billion": 10**9,
    "trillion": 10**12, "dozen": 12,
}  # fmt: skip
_UNITS_PLACE: Final = """zero one two three four five six seven eight nine ten eleven twelve
thirteen fourteen fifteen sixteen seventeen eighteen nineteen"""
_TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety"
_COUNTING_OFF: Final = """first second third fourth fifth sixth seventh eighth ninth tenth eleventh
twelfth thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"""
NUMBERS: Final = {word: number for number, word in enumerate(_UNITS_PLACE.split())} | {
    word: 10 * number for number, word in enumerate(_TENS.split(), start=2)
}
ORDINALS: Final = {word: number for number, word in enumerate(_COUNTING_OFF.split(), start=1)}
ATTRIBUTES: Final = {
    "tall": "height", "high": "height", "old": "age", "far": "distance", "long": "duration",
    "big": "size", "large": "size", "fast": "speed", "quickly": "speed", "deep": "depth",
    "wide": "width", "heavy": "weight", "hot": "temperature", "cold": "temperature",
    "warm": "temperature", "often": "frequency", "frequently": "frequency", "expensive": "price",
    "strong": "strength", "thick": "thickness", "hard": "difficulty", "difficult": "difficulty",
    "safe": "safety", "loud": "loudness", "accurate": "accuracy", "small": "size",
    "common": "frequency", "late": "time", "early": "time", "good": "quality", "rich": "wealth",
    "bright": "brightness", "healthy": "healthiness", "dangerous": "danger",
    "effective": "effectiveness", "popular": "popularity", "important": "importance",
}  # fmt: skip
ADJECTIVES: Final = word_set(
    """big large small tall short high low long old young new fast slow quick cheap rich poor deep
    wide narrow thick thin heavy light strong weak hard soft hot cold warm cool bright dark loud
    quiet early late near far close clean dirty easy simple great nice safe smart clever happy sad
    healthy pretty ugly busy funny strange hungry angry dry wet rare common fat tight loose rough
    smooth sharp sweet sour fresh full tiny hard tough mild calm brave wise noisy lucky deadly
    costly friendly lively lonely likely lovely steep shallow broad dense pure bitter salty spicy
    crisp harsh"""
)
IRREGULAR: Final = _table("""
used: use
went gone goes: go
got gotten: get
made: make
took taken: take
gave given: give
wrote written: write
drew drawn: draw
drove driven: drive
drank drunk: drink
ate eaten: eat
built: build
bought: buy
brought: bring
broke broken: break
began begun: begin
became: become
bit bitten: bite
blew blown: blow
bent: bend
bound: bind
bred: breed
caught: catch
chose chosen: choose
came: come
cost: cost
dealt: deal
dug: dig
fell fallen: fall
felt: feel
fed: feed
fought: fight
found: find
flew flown: fly
forgot forgotten: forget
froze frozen: freeze
grew grown: grow
hung: hang
heard: hear
held: hold
hid hidden: hide
kept: keep
knew known: know
laid: lay
led: lead
left: leave
lent: lend
lost: lose
meant: mean
met: meet
paid: pay
rode ridden: ride
rang rung: ring
rose risen: rise
ran: run
said: say
saw seen: see
sold: sell
sent: send
shook shaken: shake
shone: shine
shot: shoot
sang sung: sing
sank sunk: sink
sat: sit
slept: sleep
spoke spoken: speak
spent: spend
stood: stand
stole stolen: steal
stuck: stick
struck: strike
swore sworn: swear
swam swum: swim
taught: teach
tore torn: tear
told: tell
thought: think
threw thrown: throw
understood: understand
woke woken: wake
wore worn: wear
won: win
withheld: withhold
children: child
men: man
women: woman
mice: mouse
teeth: tooth
geese: goose
leaves: leaf
knives: knife
lives: life
wives: wife
wolves: wolf
halves: half
shelves: shelf
loaves: loaf
tomatoes: tomato
potatoes: potato
heroes: hero
criteria: criterion
phenomena: phenomenon
data: data
cacti: cactus
fungi: fungus
better: good
best: good
worse: bad
worst: bad
dying dies died: die
lying lies lied: lie
tying ties tied: tie
people: person
""")
FOREIGN: Final = word_set(
    """und der das ist wie ich nicht ein eine mein meine kann zu auf mit fuer warum welche wo wer
    le la les est une des du que quoi comment pourquoi je ne pas dans pour avec mon quel quelle
    el los las como por para una mi puedo cual donde quien cuando es en y il lo gli che di per
    sono come perche posso qual dove chi uma os nao eu meu het een ik hoe waarom niet mijn van
    jak och att det som jag inte hur hvad er og ikke"""
)
