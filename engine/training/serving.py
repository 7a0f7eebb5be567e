"""Questions about LLM serving: 33 concepts, each asked in very many ways.

The answers are few and fixed, the questions varied: that is how a model this small comes to
recognise a concept in a sentence it has never read.
"""

from __future__ import annotations

from random import Random
from typing import Any

from engine.training.data import load
from engine.training.documents import Turn

_SERVING = load("serving")
CONCEPTS: list[dict[str, Any]] = _SERVING["concept"]
COMPARISONS: list[dict[str, Any]] = _SERVING["comparison"]
BY_NAME = {concept["names"][0]: concept for concept in CONCEPTS}

WHAT = (
    "What is {c}?|What is {c}?|What is {c}?|What's {c}?|What does {c} mean?|What does {c} do?|"
    "What is meant by {c}?|What is the meaning of {c}?|What do you mean by {c}?|"
    "What do people mean by {c}?|What do you know about {c}?|What exactly is {c}?|"
    "What exactly does {c} mean?|What can you tell me about {c}?|What is {c} in LLM serving?|"
    "What is {c} in vLLM?|What is this {c} thing?|So what is {c}?|And what is {c}?|Explain {c}.|"
    "Explain {c} to me.|Please explain {c}.|Please explain {c} to me.|Can you explain {c}?|"
    "Can you explain {c} to me?|Can you explain what {c} is?|Could you explain {c}?|"
    "Could you explain what {c} means?|Would you explain {c} to a child?|Explain {c} simply.|"
    "Explain {c} in simple words.|Explain {c} to a beginner.|Explain what {c} is.|Define {c}.|"
    "Please define {c}.|Give me a definition of {c}.|Give a short definition of {c}.|"
    "The definition of {c}, please.|Describe {c}.|Describe {c} in one or two sentences.|"
    "Can you describe {c}?|Tell me about {c}.|Tell me what {c} is.|Tell me what {c} means.|"
    "Please tell me about {c}.|Can you tell me about {c}?|Can you tell me what {c} is?|"
    "Teach me about {c}.|I want to learn about {c}.|I want to know what {c} is.|"
    "I would like to understand {c}.|I want to understand {c}.|I do not understand {c}.|"
    "I don't understand {c}.|I do not know what {c} is.|I have never heard of {c}.|"
    "I heard about {c}. What is it?|I keep hearing about {c}.|I read about {c}. What is that?|"
    "Somebody mentioned {c}. What is it?|My teacher talked about {c}. What did she mean?|"
    "My homework is about {c}.|Help me understand {c}.|Please help me with {c}.|How does {c} work?|"
    "How would you explain {c}?|How would you describe {c}?|How do you define {c}?|"
    "How should I think of {c}?|Do you know what {c} is?|Do you know {c}?|"
    "Do you know anything about {c}?|Have you heard of {c}?|Is {c} important to know? What is it?|"
    "{c}|{c}?|{c}, please.|{c} explained|{c}: what is that?|{c} definition|{c} meaning|"
    "What about {c}?|And {c}?|How about {c}?|Now explain {c}.|Next question: {c}.|"
    "Let us talk about {c}.|I need to explain {c} to my boss.|I am confused about {c}.|"
    "Remind me what {c} is.|I forgot what {c} means.|The board shows {c}. What is that?|"
    "The lesson mentions {c}. What is it?|What should I know about {c}?|Who can explain {c}?|"
    "What happens in {c}?|Say something about {c}.|Give me the idea of {c}.|"
    "What is the idea behind {c}?|In short, what is {c}?|In a nutshell: {c}?|"
    "Summarize {c}.|I am new to this. What is {c}?|Why do people talk about {c}?|"
    "Where do I meet {c}?|When people say {c}, what do they mean?|Write something about {c}.|"
    "I'd like to know what {c} is.|I'm not sure what {c} means.|I'm lost with {c}.|whats {c}|"
    "I've never understood {c}.|I can't explain {c}. Can you?|Let's talk about {c}.|wtf is {c}|"
    "can u explain {c}|tell me {c}|Enlighten me: {c}?|{c} in plain English|{c} in one line, please.|"
    "What on earth is {c}?|What in the world is {c}?|What kind of thing is {c}?|Is {c} a good thing?|"
    "Help, {c}!|Introduce me to {c}.|Give me an introduction to {c}.|Give me an overview of {c}.|"
    "Give me a short explanation of {c}.|A short explanation of {c} would be nice.|"
    "An explanation of {c}, if you can.|How do you understand {c}?|How do experts explain {c}?|"
    "How can I picture {c}?|How can I explain {c} to my friends?|How shall I remember {c}?|"
    "My colleague asked me about {c}, and I had no answer.|On the slide it says {c}. Why?|"
    "The paper is about {c}. What does that mean?|In the article they mention {c} all the time.|"
    "There is a box called {c} on the screen. What is it?|In the exam they will ask for {c}.|"
    "If somebody asks me what {c} is, what do I say?|Imagine I am five. What is {c}?|"
    "Suppose I knew nothing. How would you teach me {c}?|Which idea is behind {c}?|"
    "I see the word {c} everywhere.|I saw {c} in the log.|The log says {c}.|It says {c} here.|"
    "The next topic is {c}.|Today we learn about {c}.|Chapter three is about {c}.|Lesson one: {c}.|"
    "Everybody talks about {c}, but nobody tells me what it is.|Please say a few words on {c}.|"
    "A word about {c}, please.|Say a sentence or two on {c}.|Make {c} clear to me.|Clear up {c}.|"
    "Do I have to know {c}?|Could I ask you about {c}?|May I ask what {c} is?|Is there a simple way to "
    "explain {c}?|What would a teacher say about {c}?|What is the story with {c}?|What's up with {c}?|"
    "For my notes: what is {c}?|For the glossary I need {c}.|Spell out what {c} means.|"
    "I wonder what {c} is.|I wonder what {c} might mean.|I am curious about {c}.|Quick: {c}?|"
    "First things first: what is {c}?|Before we go on, what is {c}?|Sorry, what was {c} again?|"
    "{c} - what is it?|{c} - please explain.|{c} - any idea?|{c} - what does that mean?|So, {c}.|"
    "OK, {c}: how would you explain it?|My boss keeps talking about {c}. Help!|Help me out with {c}.|"
    "People at school say {c}, and I have no idea what it is.|My uncle wants to know what {c} is.|"
    "How would you tell my mother about {c}?|If my grandfather asked about {c}, what should I say?|"
    "If you had one sentence for {c}, what would it be?|I never came across {c}. What is it?|"
    "I have to answer a question about {c}. What do I say?|Somebody might ask me about {c}.|"
    "How should I answer when they ask about {c}?|Take me through {c}.|Lead me through {c} slowly.|"
    "Refresh my memory: {c}?|I need a reminder of {c}.|The essence of {c}, please.|{c} for beginners|"
    "{c} for dummies|Make me understand {c}.|I would love to understand {c}.|Throw some light on {c}.|"
    "The manual speaks of {c}; what is that?|The text goes on about {c}, what do they mean?|"
    "The term {c}: what does it stand for?|What does the term {c} say?|What is behind the term {c}?|"
    "What is {c} supposed to mean?|What is {c} supposed to be?|Hey, what is it with {c}?|"
    "Take {c} apart for me.|Unpack {c} for me.|Put {c} into simple words.|Put {c} in your own words.|"
    "I nod when they say {c}, but I have no clue.|Do you mind explaining {c}?|Mind explaining {c}?"
).split("|")
# Never trained on.
WHAT_HELD_OUT = (
    "Would you tell me what {c} is?|What would you say {c} is?|Please describe {c} for me.|"
    "I need a definition of {c}.|Can you define {c}?|What am I to understand by {c}?|"
    "I would like to know about {c}.|Could you tell me something about {c}?"
).split("|")
WHY = (
    "Why does {c} matter?|Why is {c} important?|Why do we need {c}?|What is {c} good for?|"
    "Why should I care about {c}?|What is the point of {c}?|Why is {c} useful?|"
    "What is the benefit of {c}?|What are the advantages of {c}?|Why do servers use {c}?|"
    "Why is there {c}?|What does {c} bring?|What is {c} used for?|Why would I want {c}?|"
    "Tell me why {c} matters.|Explain why {c} is important.|What is so good about {c}?"
).split("|")
WHY_NEXT = "Why does it matter?|Why is that important?|And why?|What is it good for?|Why?".split(
    "|"
)
MORE = "Tell me more.|More, please.|What else?|Can you tell me more?|Go on.|And then?".split("|")
AGAIN = (
    "I did not get it.|Can you repeat that?|Say that again.|What was that?|Once more, please."
).split("|")
COMPARE = (
    "What is the difference between {a} and {b}?|What's the difference between {a} and {b}?|"
    "How does {a} differ from {b}?|How do {a} and {b} differ?|Compare {a} and {b}.|"
    "Compare {a} with {b}.|{a} or {b}: what is the difference?|{a} versus {b}|{a} vs {b}|"
    "Is {a} the same as {b}?|Are {a} and {b} the same?|Explain the difference between {a} and {b}.|"
    "Can you compare {a} and {b}?|Can you explain how {a} differs from {b}?|"
    "How is {a} different from {b}?|What distinguishes {a} from {b}?|I mix up {a} and {b}.|"
    "I always confuse {a} and {b}. Help me.|Tell me how {a} and {b} differ.|"
    "Why is {a} not the same as {b}?|{a} and {b}, what is the difference?|"
    "What is different between {a} and {b}?|Please compare {a} to {b}.|{a} against {b}?"
).split("|")


def first_sentence(text: str) -> str:
    """The text up to its first full stop."""
    return text.partition(". ")[0].removesuffix(".") + "."


def concept_turns(rng: Random) -> list[Turn]:
    """A question about one concept, and now and then one that only makes sense after it."""
    concept = rng.choice(CONCEPTS)
    name = rng.choice(concept["names"])
    what, brief = concept["what"], first_sentence(concept["what"])
    how = rng.random()
    if how < 0.14:
        return [Turn(rng.choice(WHY).format(c=name), concept["why"], brief=concept["why"])]
    question = rng.choice(concept["asks"]) if how < 0.29 else rng.choice(WHAT).format(c=name)
    result = [Turn(question[0].upper() + question[1:], what, brief=brief)]
    follow = rng.random()
    if follow < 0.08:
        result.append(Turn(rng.choice(WHY_NEXT), concept["why"]))
    elif follow < 0.16:
        result.append(Turn(rng.choice(MORE), concept["more"]))
    elif follow < 0.19:
        result.append(Turn(rng.choice(AGAIN), what, brief=brief))
    return result


def comparison_turns(rng: Random) -> list[Turn]:
    """A question for the difference of two concepts, in either order.

    A pair without an answer of its own gets the first sentences of its two definitions.
    """
    if rng.random() < 0.6:
        chosen = rng.choice(COMPARISONS)
        first, second = (BY_NAME[name] for name in rng.sample(chosen["pair"], 2))
        answer = chosen["answer"]
    else:
        first, second = rng.sample(CONCEPTS, 2)
        answer = f"{first_sentence(first['what'])} {first_sentence(second['what'])}"
        pair = {first["names"][0], second["names"][0]}
        answer = next((c["answer"] for c in COMPARISONS if set(c["pair"]) == pair), answer)
    a, b = rng.choice(first["names"]), rng.choice(second["names"])
    question = rng.choice(COMPARE).format(a=a, b=b)
    return [Turn(question[0].upper() + question[1:], answer)]


def prose(rng: Random) -> str:
    """A paragraph about one to three concepts, for plain completions such as "Prefill is"."""
    parts = []
    for concept in rng.sample(CONCEPTS, rng.choice((1, 1, 2, 3))):
        parts.append(concept["what"])
        parts += [concept[key] for key in ("why", "more") if rng.random() < 0.6]
    return " ".join(parts)
