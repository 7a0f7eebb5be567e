"""Lesson 00: in which step does Eva get her first token?"""

from checks.answer import Answer

ANSWERS = {
    "eva": Answer(
        10,
        {
            9: "Bo's answer has 8 tokens, and eight steps are over by then. But his first token came "
            "only in step 2.",
            11: "Ada was the first to get a token, and her answer has 10. But Bo, who began one step "
            "later, needs only 8, so he ends before her.",
            13: "Dev's answer is the shortest, but the machine was busy with his long prompt until "
            "step 7.",
        },
    )
}
