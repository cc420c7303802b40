"""Thousands of short questions, about nothing that anybody else asks about.

Each is a template filled with one or two words. The subjects are far-fetched on purpose (animals,
crafts, instruments, gems, legends, small towns), so that the questions fill a cache without
answering anything that is asked of it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import chain, product, zip_longest
from typing import Final

__all__ = ["unrelated"]

_WORDS: Final[dict[str, tuple[str, ...]]] = {
    slot: tuple(word.strip() for word in words.split(","))
    for slot, words in {
        "animal": """
            axolotl, badger, beaver, bison, caribou, chameleon, cormorant, coyote, cuttlefish,
            dormouse, echidna, flamingo, gecko, gibbon, hedgehog, heron, ibex, iguana, jackal,
            kingfisher, lemur, lobster, lynx, manatee, marmot, meerkat, mole, moose, narwhal, newt,
            octopus, okapi, opossum, osprey, otter, pangolin, pelican, platypus, porcupine, puffin,
            raccoon, salamander, seahorse, skunk, sloth, squid, stork, tapir, tortoise, walrus,
            weasel, wombat, woodpecker""",
        "town": """
            Antwerp, Bergen, Bilbao, Bologna, Bruges, Cartagena, Cusco, Dunedin, Fez, Galway,
            Ghent, Graz, Hobart, Izmir, Jaipur, Kanazawa, Krakow, Leipzig, Ljubljana, Luang
            Prabang, Lviv, Malmo, Mendoza, Nairobi, Odense, Porto, Quito, Riga, Salta, Samarkand,
            Pula, Tallinn, Tbilisi, Tirana, Trieste, Turku, Utrecht, Valparaiso, Windhoek, Yerevan,
            Zagreb, Zanzibar, Aleppo, Bratislava, Coimbra, Dijon""",
        "trade": """
            acrobat, apothecary, astrologer, bailiff, barber, beekeeper, blacksmith, bookbinder,
            bricklayer, butler, candlemaker, carpenter, cartographer, chimney sweep, clockmaker,
            cobbler, cooper, ferryman, falconer, fortune teller, gardener, glassblower, goldsmith,
            gravedigger, hatmaker, horse breeder, innkeeper, juggler, lighthouse keeper, locksmith,
            lumberjack, minstrel, miller, milkman, night watchman, perfumer, piano tuner, potter,
            puppeteer, ratcatcher, rope maker, sailor, shepherd, stonemason, tailor, taxidermist,
            thatcher, ventriloquist, weaver, wheelwright""",
        "instrument": """
            accordion, alphorn, balalaika, bassoon, bongo, bandoneon, celesta, cello, clarinet,
            concertina, cornet, cowbell, didgeridoo, double bass, dulcimer, erhu, flugelhorn,
            flute, glockenspiel, gong, harmonica, harp, harpsichord, hurdy-gurdy, kalimba, kazoo,
            koto, lute, lyre, mandolin, guiro, marimba, oboe, ocarina, oud, pan flute, piccolo,
            recorder, saxophone, sitar, steel drum, tambourine, theremin, kettledrum, triangle,
            trombone, tuba, vibraphone, viola, xylophone, zither""",
        "sport": """
            abseiling, aikido, archery, badminton, biathlon, billiards, bobsleigh, bouldering,
            bowling, boxing, bull riding, canoeing, cricket, croquet, curling, darts, dodgeball,
            dressage, fencing, figure skating, frisbee golf, gymnastics, hammer throw, hang
            gliding, high diving, hurling, ice hockey, javelin, judo, kabaddi, kitesurfing,
            lacrosse, luge, netball, orienteering, paragliding, parkour, pole vault, polo,
            powerlifting, quoits, rafting, roller derby, rowing, rugby, sepak takraw, shot put,
            speed skating, sumo, table tennis, trampolining, tug of war, water polo, windsurfing,
            wrestling""",
        "item": """
            ashtray, bird bath, birdcage, bookend, brooch, candlestick, chandelier, cheese dome,
            cigar box, coat hanger, coffee table, compass, corkscrew, cuckoo clock, dollhouse,
            doorstop, dreamcatcher, egg timer, fire screen, fountain pen, globe, goblet, hammock,
            sand timer, jewelry box, kaleidoscope, lampshade, lantern, letter opener, locket,
            monocle, music box, napkin ring, ottoman, paperweight, picture frame, pocket watch,
            rocking horse, signet ring, snow globe, spinning top, sundial, teapot, thimble, tiara,
            toothpick holder, trophy, vase, walking stick, weather vane, wind chime""",
        "material": """
            alabaster, aluminium foil, balsa, bamboo, birch bark, brass, bronze, burlap, canvas,
            cardboard, cast concrete, cedar, chestnut wood, clay, copper, cork, driftwood, ebony,
            felt, fiberglass, granite, horn shavings, ivory, jute, lacquer, leather scraps,
            limestone, linen, mahogany, marble, mother of pearl, oak, papier-mache, parchment,
            pewter, plaster, plexiglass, porcelain, rattan, resin, rubber, sandstone, sheet tin,
            slate, soapstone, straw, teak, terracotta, velvet, walnut wood, wax, wicker""",
        "place": """
            abandoned mine, alpine meadow, bog, canyon, caldera, cave, cliff, coral reef, crater
            lake, delta, dune, estuary, fjord, floodplain, geyser, glacier, gorge, heath, hot
            spring, iceberg, lagoon, lava field, mangrove swamp, marsh, mesa, moor, mudflat, oasis,
            orchard, peat bog, pine forest, plateau, prairie, quarry, ravine, salt flat, sandbank,
            savanna, sinkhole, steppe, tide pool, tundra, vineyard, volcano, waterfall,
            whirlpool""",
        "myth": """
            Anansi, Anubis, Aphrodite, Athena, Baba Yaga, Baldur, Bastet, Beowulf, Brigid,
            Cerberus, Circe, Coyote the trickster, Cu Chulainn, Daedalus, Demeter, Dionysus,
            Enkidu, Fenrir, Freya, Ganesha, Gilgamesh, Hanuman, Hathor, Heimdall, Hephaestus,
            Huitzilopochtli, Isis, Ishtar, Itzamna, Izanagi, Krampus, Loki, Maui, Medusa, Merlin,
            Minotaur, Morrigan, Odin, Orpheus, Osiris, Persephone, Prometheus, Quetzalcoatl,
            Raijin, Rumpelstiltskin, Sedna, Sun Wukong, Thor, Tiamat, Vainamoinen""",
        "dish": """
            arancini, baba ganoush, baklava, bibimbap, bobotie, borscht, bouillabaisse, bulgogi,
            cannoli, carpaccio, cassoulet, ceviche, churros, couscous, dolma, empanadas, falafel,
            feijoada, fondue, gazpacho, gnocchi, goulash, gumbo, haggis, halva, injera, jambalaya,
            jerk goat, kimchi, laksa, moussaka, mole poblano, nasi goreng, okonomiyaki, paella,
            pastrami, pavlova, pho, pierogi, poutine, quiche, raclette, rendang, samosas,
            sauerkraut, schnitzel, shakshuka, strudel, sushi, tagine, takoyaki, tempura, tiramisu,
            tom yum""",
        "event": """
            anniversary dinner, art auction, baby shower, bachelor night, barn dance, baptism, bar
            mitzvah, barbecue, book launch, bridal shower, carnival parade, charity gala, choir
            rehearsal, christening, circus show, clan gathering, company picnic, costume ball,
            debutante ball, farewell party, film premiere, fireworks night, funeral, garden fete,
            graduation ball, harvest supper, hen party, housewarming, knitting circle, masquerade,
            murder mystery evening, name day, open mic night, poetry slam, pub quiz, puppet show,
            quinceanera, regatta, retirement party, school reunion, seance, silent disco, silver
            wedding, sleepover, stag night, street fair, talent contest, tea ceremony""",
        "gem": """
            agate, alexandrite, amazonite, amber, amethyst, ametrine, apatite, aquamarine,
            aventurine, azurite, beryl, bloodstone, carnelian, chalcedony, chrysoberyl, citrine,
            coral, fluorite, garnet, hematite, howlite, jade, jasper, iolite, kunzite, kyanite,
            labradorite, lapis lazuli, larimar, malachite, moldavite, moonstone, morganite,
            obsidian, onyx, opal, pearl, peridot, pyrite, rhodonite, rose quartz, ruby, sapphire,
            smoky quartz, spinel, sunstone, tanzanite, topaz, tourmaline, turquoise, zircon""",
        "vehicle": """
            airship, bamboo raft, barge, bulldozer, cable railway, canoe, carriage, catamaran,
            chariot, combine harvester, dirigible, dogsled, dune buggy, fire engine, fishing
            trawler, gondola, glider, go-kart, golf cart, gyrocopter, hearse, hovercraft, hot air
            balloon, ice cream van, icebreaker, kayak, limousine, longship, milk float, monorail,
            moped, paddle steamer, penny-farthing, pontoon, rickshaw, rowboat, schooner, seaplane,
            Segway, sidecar, snowplough, stagecoach, steam locomotive, submarine, tandem, toboggan,
            tractor, tram, trolleybus, tugboat, velomobile, zeppelin""",
        "genre": """
            acid jazz, afrobeat, ambient, bachata, baroque, bebop, bluegrass, bolero, bossa nova,
            breakbeat, calypso, chanson, chiptune, country, cumbia, dancehall, death metal, disco,
            doo-wop, drum and bass, dub, fado, flamenco, folk rock, funk, garage rock, glam rock,
            gospel, grunge, honky-tonk, house, industrial, klezmer, krautrock, mariachi, merengue,
            opera buffa, polka, ragtime, reggae, rockabilly, salsa, samba, shoegaze, ska, soul,
            swing, synthwave, tango, techno, trance, trip hop, vaporwave, zydeco""",
    }.items()
}

_TEMPLATES: Final = """
Is there any chance of spotting a {animal} around {town}?
Sketch a {animal} riding on a {vehicle}
Name for a {sport} team with a {animal} as its mascot
Could a {animal} survive beside a {place}?
Bedtime story about a {animal} and a {trade}
Do cartoons ever show a {animal} playing the {instrument}?
Carving a {animal} out of {material}
Did {myth} ever turn into a {animal}?
How heavy does a grown {animal} get?
What is a baby {animal} called?
Latin name of the {animal}
A {animal} walked through our {event} yesterday
Crossword clue for {animal} involving {gem}
Album cover with a {animal} for a {genre} band
Where can I hire a {trade} in {town}?
Any {sport} clubs accepting newcomers in {town}?
Looking for someone near {town} who teaches the {instrument}
Which restaurant in {town} serves decent {dish}?
Suggest a venue for our {event} in {town}
Did {town} ever have a {genre} scene?
Is an old {vehicle} on display anywhere around {town}?
Souvenirs made of {material} from {town}
Market stalls selling {gem} in {town}
What is {town} famous for?
Nickname given to the locals of {town}
Coat of arms of {town}
Is a {place} within walking distance of {town}?
Guild hall of the {trade} in old {town}
Slogan for the {trade} who specialises in {material}
What clothes did a {trade} wear long ago?
Who is the patron saint of the {trade}?
Riddle about a {trade} and a {item}
Surnames derived from the job of {trade}
Poem for a retiring {trade} who adores {sport}
Costume of a {trade} for the {event}
Did any {trade} live next to a {place}?
My grandfather was a {trade} and cooked {dish} every week
Is the {instrument} common in {genre}?
Name a famous {instrument} soloist
My {instrument} sounds odd in humid air
Will the neighbours hear the {instrument} through a wall?
Would the {instrument} be too solemn for the {event}?
Miniature {instrument} made of {material}
Weatherproof case for the {instrument}
Busking with the {instrument} on a {vehicle}
Ancient paintings of {myth} with the {instrument}
Trade my {instrument} for a {item}?
What injuries are typical of {sport}?
Is {sport} scored by points or by judges?
{sport} near a {place}: sensible or crazy?
Can {genre} make {sport} practice more fun?
Second-hand gear for {sport} around {town}
Oldest known rulebook of {sport}
Who supplies {material} trophies for {sport}?
Snack bar selling {dish} at {sport} matches
Is {material} sturdy enough for a {item}?
The {item} we bought in {town} has a scratch
Appraisal of an antique {item}
Would a {item} be welcome as a gift at the {event}?
Haggling over a {item} at the {event}
Can {gem} be glued onto a {item}?
Could a {trade} restore grandmother's {item}?
{item} shaped like a {animal}
Why is a {item} left on the {place} in that painting?
What does {material} smell like when it is wet?
Who first worked with {material}?
Does {material} look nice next to {gem}?
Scale model of a {vehicle} in {material}
Sculptures in {material} inspired by {myth}
How long has humanity traded {material}?
Is {material} mentioned in any {genre} song?
Crossing a {place} by {vehicle}
Watercolour of a {place} with a {animal} at dusk
Write a ballad about {myth} beside a {place}
Is {gem} ever collected near a {place}?
Best known {place} on any postage stamp
Echo effects recorded inside a {place} for {genre}
Which powers does {myth} have?
Who are the rivals of {myth}?
Tattoo of {myth} holding a {item}
Comic where {myth} works as a {trade}
Rock opera about {myth} in the style of {genre}
Did {myth} own a {vehicle}?
Would {myth} enjoy {dish}?
Which wine goes with {dish}?
Is {dish} eaten with hands or a spoon?
Origin of the name {dish}
I burned the {dish} before our {event}
Food truck idea: {dish} sold from a {vehicle}
Is {dish} a street food in {town}?
Short toast for a {event} given by a {trade}
Dress code for a {event} held at a {place}
Who traditionally pays for a {event}?
Invitation to a {event} with a {animal} theme
{genre} playlist for a {event}
Is my {gem} fake or genuine?
Folklore linking {gem} with {myth}
Polishing {gem} with a cloth or a brush?
Which colours go well with {gem}?
Thief steals {gem} from a {trade}: plot twist ideas
Who built the earliest {vehicle}?
How many passengers fit in a {vehicle}?
Parking a {vehicle} overnight in {town}
Renting a {vehicle} for the {event}
Steering a {vehicle} with one hand
Where did {genre} originate?
Vinyl shops stocking {genre} in {town}
Is {genre} danced in pairs?
Lyrics in {genre} style about a lonely {trade}
""".strip().splitlines()


def unrelated(count: int, seed: int = 1) -> list[str]:
    """``count`` distinct questions (up to 190 000), all templates in turn while they last.

    The same seed gives the same questions, and fewer of them are the first of more.
    """
    dice = random.Random(seed)
    templates = dice.sample(_TEMPLATES, len(_TEMPLATES))
    found: dict[str, None] = {}
    for text in chain.from_iterable(zip_longest(*[_filled(each, dice) for each in templates])):
        if len(found) == count:
            break
        if text is not None:
            found[text] = None
    if len(found) < count:
        raise ValueError(f"there are {len(found)} questions, not {count}")
    return list(found)


def _filled(template: str, dice: random.Random) -> Iterator[str]:
    """A template with everything that fits into it, in any order."""
    slots = re.findall(r"\{(\w+)\}", template)
    choices = list(product(*[_WORDS[slot] for slot in slots]))
    dice.shuffle(choices)
    for words in choices:
        text = template.format(**dict(zip(slots, words, strict=True)))
        text = re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)
        yield text[0].upper() + text[1:]
