"""The words that stories, sums and letter counts draw from."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

GIRLS = (
    "Ada Amy Anna Bella Clara Daisy Ella Emma Eva Flora Grace Hanna Ida Iris Ivy Jade Julia Kate "
    "Lena Lily Lola Lucy Luna Maria Maya Mia Mila Mina Molly Nina Nora Olga Pia Rosa Ruby Sara "
    "Sofia Tara Tilda Vera Wanda Zoe"
).split()
BOYS = (
    "Adam Alan Alex Anton Ben Bruno Carl Dan David Eric Felix Finn Fred George Hugo Ivan Jack Jim "
    "John Jonas Kai Karl Leo Louis Luke Max Milo Nico Noah Oscar Otto Paul Pip Rob Sam Simon Ted "
    "Theo Tim Toby Tom Victor Walter"
).split()
ANIMALS = (
    "fox owl bear rabbit mouse cat dog hedgehog frog duck deer wolf squirrel turtle lion elephant "
    "penguin goat horse bird ant bee pig sheep monkey tiger dragon"
).split()
PEOPLE = {"girl": GIRLS, "boy": BOYS, "princess": GIRLS, "prince": BOYS}
UNKNOWN_ANIMALS = (
    "axolotl dragonfly platypus kangaroo whale shark crocodile giraffe zebra octopus jellyfish "
    "hamster flamingo lobster parrot salamander walrus beaver otter badger snail spider camel "
    "panda koala lizard seahorse moose buffalo peacock ostrich vulture weasel gorilla leopard "
    "hippo rhino lynx bat crab eel swan eagle stork toad worm moth wasp beetle raccoon alpaca "
    "llama chicken cow donkey goose unicorn mermaid dinosaur robot"
).split()

HOMES = (
    "in a small house by the sea|in a deep green forest|at the edge of a village|on a high hill|"
    "near a quiet river|under an old oak tree|in a little town|on a small island|"
    "behind the blue mountains|in an old mill|in a valley full of flowers|by a round lake"
).split("|")
PLACES = (
    "in the forest|by the river|on the hill|in the meadow|by the lake|near the old mill|"
    "in the garden|behind the house|in the field|under the old oak tree|on the beach"
).split("|")
FOODS = (
    "honey|apples|bread|berries|soup|nuts|cheese|cookies|plums|pancakes|cherries|carrots|cake"
).split("|")
THINGS = "ball kite hat drum bell boat scarf lamp key book spoon bag ring whistle cup".split()
COLORS = "red blue green yellow golden silver white purple brown pink".split()
WEATHERS = "sunny windy rainy cold warm foggy bright snowy".split()
SOUNDS = "small soft strange quiet tiny thin".split()

COUNTED_WORDS = (
    "hello strawberry banana apple mississippi raspberry blueberry cherry letter balloon coffee "
    "butter pepper cookie summer winter yellow purple orange window mirror garden flower rabbit "
    "squirrel elephant butterfly dragonfly caterpillar crocodile hippopotamus giraffe penguin "
    "kangaroo umbrella chocolate pineapple watermelon coconut avocado tomato potato onion carrot "
    "cabbage spinach broccoli cucumber pumpkin zucchini banjo guitar piano violin trumpet drum "
    "saxophone orchestra symphony melody harmony rhythm computer keyboard monitor printer server "
    "scheduler token tokenizer prefill decode throughput latency preemption eviction attention "
    "transformer embedding inference parallel sequence memory cache block radix tree budget queue "
    "request response streaming temperature probability statistics mathematics geometry algebra "
    "philosophy psychology biology chemistry physics history geography literature language "
    "grammar sentence paragraph chapter library dictionary encyclopedia alphabet vowel consonant "
    "mountain river ocean island desert forest jungle valley canyon volcano glacier waterfall "
    "thunder lightning rainbow hurricane tornado blizzard avalanche earthquake universe galaxy "
    "planet asteroid satellite telescope astronaut rocket shuttle gravity eclipse horizon sunset "
    "sunrise midnight morning afternoon evening yesterday tomorrow calendar century millennium "
    "family mother father sister brother daughter grandmother grandfather cousin neighbor friend "
    "teacher student doctor lawyer engineer scientist artist musician painter sculptor writer "
    "kitchen bedroom bathroom ceiling floor chimney staircase basement attic balcony terrace "
    "bicycle motorcycle automobile airplane helicopter submarine locomotive tractor ambulance "
    "happiness sadness excitement curiosity courage wisdom patience generosity kindness honesty "
    "possession assessment address committee success access process necessary bookkeeper "
    "tennessee massachusetts connecticut pennsylvania california minnesota wisconsin illinois "
    "test word code book tea egg add fall ball bell bee see tree moon noon pool room week zoo"
).split()

_ONSETS = "b c d f g h j k l m n p r s t v w z bl br ch cl cr dr fl fr gl gr pl pr sh sk sl sn sp st str th tr tw".split()  # noqa: E501
_VOWELS = "a e i o u ai ea ee oo ou y".split()
_CODAS = ["", "", "", *"b d g k l m n p r s t x ll ss nt rk st ng ck mp".split()]


def nonsense_word(rng: Random) -> str:
    """A pronounceable word of one to four syllables that is in no dictionary."""
    syllables = rng.choice((1, 2, 2, 3, 3, 4))
    return "".join(
        rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(syllables)
    )


def counted_word(rng: Random) -> str:
    """A word to count letters in: real, nonsense, or plain random letters, 2 to 16 letters."""
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(COUNTED_WORDS)
    if kind < 0.75:
        return nonsense_word(rng)[:16]
    # Few different letters make repeats likely, and repeats are what makes copying hard.
    letters = rng.sample("abcdefghijklmnopqrstuvwxyz", rng.randint(2, 8))
    return "".join(rng.choices(letters, k=rng.randint(2, 12)))


class Character(NamedTuple):
    """Someone in a story: ``Pip``, ``fox``, and the pronouns ``he him his``."""

    name: str
    kind: str
    he: str
    him: str
    his: str


def character(rng: Random, kind: str | None = None, name: str | None = None) -> Character:
    """Draw a character; a given kind or name is kept, and the pronouns fit the name."""
    if kind is None:
        people = name is None or name in GIRLS or name in BOYS
        kind = rng.choice(list(PEOPLE)) if people and rng.random() < 0.3 else rng.choice(ANIMALS)
        if kind in PEOPLE and name is not None and name not in PEOPLE[kind]:
            kind = rng.choice(ANIMALS)
    names = PEOPLE.get(kind) or rng.choice((GIRLS, BOYS))
    name = name or rng.choice(names)
    girl = name in GIRLS if kind not in PEOPLE else PEOPLE[kind] is GIRLS
    return Character(name, kind, *(("she", "her", "her") if girl else ("he", "him", "his")))


def with_article(noun: str) -> str:
    """``a fox``, ``an owl``."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
