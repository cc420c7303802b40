"""The guard, rule by rule: which near text may not answer for another, and under what name."""

from __future__ import annotations

import pytest

from cache.guard import profile, veto

VETOES = {
    "number": [
        ("Boil it for 3 minutes please", "Boil it for 13 minutes please"),
        ("What is nine times six?", "What is nine times seven?"),
        ("Who was the third tsar of Russia?", "Who was the fifth tsar of Russia?"),
        ("Rent below $1,200 in Ghent", "Rent below $12,000 in Ghent"),
        ("Upgrade Django 4.2 to 5.0", "Upgrade Django 4.1 to 5.0"),
        ("How do I clear error E24?", "How do I clear error E42?"),
        ("Tell me about Pope Leo XIII", "Tell me about Pope Leo XII"),
        ("Why did World War I begin?", "Why did World War II begin?"),
        ("Invest three thousand in bonds", "Invest three million in bonds"),
        ("Plan a walk of half a mile", "Plan a walk of a mile"),
    ],
    "date": [
        ("What happened on 3 May 1808?", "What happened on 2 May 1808?"),
        ("Show the revenue of March 2020", "Show the revenue of March 2021"),
        ("Which films came out in April?", "Which films came out in August?"),
        ("Is the pool open on Mondays?", "Is the pool open on Thursdays?"),
        ("Meet me at 7 am at the station", "Meet me at 7 pm at the station"),
    ],
    "unit": [
        ("How many yards are in a league?", "How many feet are in a league?"),
        ("Add 5 g of yeast", "Add 5 oz of yeast"),
        ("Heat it to 200 C", "Heat it to 200 F"),
        ("How many days will it take?", "How many weeks will it take?"),
        ("What is the wage per week?", "What is the wage per month?"),
        ("How much is it in dollars?", "How much is it in euros?"),
    ],
    "negation": [
        ("Which mushrooms are edible?", "Which mushrooms are not edible?"),
        ("Why does my cat sleep?", "Why doesn't my cat sleep?"),
        ("My tap is open", "My tap is not open"),
        ("Show flights with a stop", "Show flights without a stop"),
        ("How do I enable the VPN?", "How do I disable the VPN?"),
        ("How do I stretch before a run?", "How do I stretch after a run?"),
        ("How do I turn the alarm on?", "How do I turn the alarm off?"),
        ("How do I zoom in on a map?", "How do I zoom out on a map?"),
        ("Is the contract legal?", "Is the contract illegal?"),
        ("How do I show hidden layers?", "How do I hide layers?"),
    ],
    "entity": [
        ("What is the capital of Slovakia?", "What is the capital of Slovenia?"),
        ("Tell me about Henry Moore", "Tell me about Henry Spencer Moore"),
        ("Where is Cambridge, England?", "Where is Cambridge, Massachusetts?"),
        ("How do I sort a list in Perl?", "How do I sort a list in Julia?"),
        ("Write a parser in C", "Write a parser in C++"),
        ("Translate it into Dutch", "Translate it into Danish"),
        ("Who directed Alien?", "Who directed Aliens?"),
    ],
    "quoted": [
        ('What does "final" mean?', "What does finally mean?"),
        ('Define "fewer"', 'Define "less"'),
        ('How do I say "ham" in Polish?', 'How do I say "jam" in Polish?'),
    ],
    "operator": [
        ("Compute 8 + 3", "Compute 8 - 3"),
        ("Is x < 4 for this x?", "Is x > 4 for this x?"),
        ("Houses over 200 meters", "Houses of 200 meters"),
    ],
    "order": [
        ("How do I switch from Vim to Emacs?", "How do I switch from Emacs to Vim?"),
        ("Is silver softer than tin?", "Is tin softer than silver?"),
        ("Did Athens attack Sparta?", "Did Sparta attack Athens?"),
        ("Did Athens attack Sparta?", "Was Athens attacked by Sparta?"),
        ("What is 12 minus 5?", "What is 5 minus 12?"),
        ("Can a bat infect a cow?", "Can a cow infect a bat?"),
        ("How many euros is a dollar?", "How many dollars is a euro?"),
    ],
    "content": [
        ("How do I delete a branch?", "How do I delete a tag?"),
        ("Describe it in one sentence", "Describe it in one paragraph"),
        ("Write a poem about rivers", "Write a story about rivers"),
        ("How do I grow parsley?", "How do I grow coriander?"),
        ("My drain clogs, how do I prevent it?", "My drain clogs, how do I clear it?"),
        ("How do I turn a loop into a while loop?", "How do I turn a loop into a for loop?"),
        ("How do I cook an artichoke?", "How do I store an artichoke?"),
    ],
    "scope": [
        ("How do I bake bread?", "How do I bake gluten free bread?"),
        ("Do you sell tires?", "Do you repair tires?"),
        ("What is the fee?", "What is the fee for students?"),
        ("What are the rules of hockey?", "What are the rules of field hockey?"),
        ("What is the best laptop?", "What is a laptop?"),
    ],
    "question": [
        ("How do I pay my rent?", "When do I pay my rent?"),
        ("Why do owls hunt?", "Where do owls hunt?"),
        ("How many nurses work there?", "Which nurses work there?"),
        ("Is the train late?", "Why is the train late?"),
        ("What is a mortgage?", "Why is a mortgage?"),
    ],
    "modality": [
        ("Can I swim with a cold?", "Should I swim with a cold?"),
        ("Must I register my drone?", "May I register my drone?"),
        ("Who can sign the lease?", "Who must sign the lease?"),
    ],
    "quantifier": [
        ("Do all snakes bite?", "Do some snakes bite?"),
        ("Why do most firms fail?", "Why do firms fail?"),
        ("Is only cash accepted?", "Is cash accepted?"),
        ("Is at least a pass needed?", "Is at most a pass needed?"),
        ("Which is a tall tower?", "Which is the tallest tower?"),
    ],
    "tense": [
        ("Will the bank raise rates?", "Did the bank raise rates?"),
        ("Who is the mayor of Oslo?", "Who was the mayor of Oslo?"),
    ],
    "person": [
        ("What is my name?", "What is your name?"),
        ("What are his symptoms?", "What are her symptoms?"),
        ("Do you pay taxes?", "Do they pay taxes?"),
    ],
}  # fmt: skip

SAME = [
    ("How do I reset my router?", "What are the steps to reset a router?"),
    ("Why do bees sting?", "What makes bees sting?"),
    ("Who painted The Night Watch?", "Which artist painted The Night Watch?"),
    ("What's the height of the Matterhorn?", "How tall is the Matterhorn?"),
    ("What is 30% of 90?", "Calculate 30 percent of 90"),
    ("Convert 4 miles to kilometers", "How many kilometers is 4 miles?"),
    ("When did World War II start?", "In what year did the Second World War begin?"),
    ("How do I pick a lock without a key?", "What's the way to pick a lock without a key?"),
    ("My phone won't charge", "My phone is not charging"),
    ("How do I set up two-factor authentication?", "Setting up 2FA"),
    ("How far is Mars from the Sun?", "What is the distance from the Sun to Mars?"),
    ("What is the GDP of Japan?", "Japan's GDP"),
    ("How do I keep my cat from scratching?", "How can I prevent my cat from scratching?"),
    ("Is it safe to eat raw eggs?", "Can I eat raw eggs?"),
    ("The colour of the neighbour's car", "the color of the neighbor's car"),
    ("What is the population of the USA?", "How many people live in the United States?"),
    ("Did Athens attack Sparta?", "Was Sparta attacked by Athens?"),
    ("What led to the fall of Troy?", "Why did Troy fall?"),
    ("How many hours does it take to fly there?", "How long does it take to fly there?"),
    ("First person to cross Antarctica", "Who was the first person to cross Antarctica?"),
    ("What is the best season for visiting Peru?", "When should I visit Peru?"),
    ("How did Caesar die?", "What was the cause of Caesar's death?"),
    ("What helps with a sore throat?", "How do I treat a sore throat?"),
    ("My sink drips, what can I do?", "How do I stop a dripping sink?"),
    ("My router is offline", "My router is not online"),
    ("How do I open it without a key?", "How do I open it if I have no key?"),
    ("What is the yield keyword in Python?", "What is yield in the Python language?"),
    ("Can pregnant women fly?", "Can I fly while pregnant?"),
    ("Is the flag drinkable?", "Can I drink the flag?"),
    ("How do I merge two PDFs?", "How do I merge two PDF files?"),
    ('Explain the idiom "to bite the bullet"', 'What does "bite the bullet" mean?'),
    ('Define "serene"', 'What is the meaning of the word "serene"?'),
]


@pytest.mark.parametrize(
    ("reason", "asked", "stored"),
    [(reason, *pair) for reason, pairs in VETOES.items() for pair in pairs],
)
def test_it_vetoes_by_name(reason: str, asked: str, stored: str) -> None:
    found = veto(profile(asked), profile(stored))
    assert found is not None
    assert found.reason == reason, found


@pytest.mark.parametrize(("asked", "stored"), SAME)
def test_it_lets_the_same_question_through(asked: str, stored: str) -> None:
    assert veto(profile(asked), profile(stored)) is None


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("How do I bake bread?", "How do I bake rye bread?"),
        ("What does a wedding cost?", "What is the average cost of a wedding?"),
        ("How did Troy fall?", "When did Troy fall?"),
        ("How do I delete a branch in git?", "How do I delete a tag in git?"),
    ],
)
def test_similarity_excuses_no_word_that_narrows_down(asked: str, stored: str) -> None:
    assert veto(profile(asked), profile(stored), similarity=0.99) is not None


def test_a_veto_names_what_differs() -> None:
    found = veto(profile("Is 3 prime?"), profile("Is 4 prime?"))
    assert found is not None
    assert found.detail == "3 / 4"
