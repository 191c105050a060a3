"""The default categories and the signs they are known by.

Signs are general: an instruction's verb at either end of a prompt, the look of code, a long text with a question. None
is the template of a data set. Order matters: what the client wants done (translate, shorten, rewrite, tabulate) comes
before what the text is about (code, numbers), because the form of the answer decides how well a draft is accepted.

Every repetition in a pattern is bounded, so no prompt can make one slow.
"""

from __future__ import annotations

from typing import Final

from slipstream.core.category import CategoryRule

__all__ = ["DEFAULT_CATEGORIES", "DEFAULT_CATEGORY", "DEFAULT_RULES"]

DEFAULT_CATEGORY: Final = "chat"

DEFAULT_CATEGORIES: Final = (
    "code",
    "edit",
    "structured",
    "summarization",
    "retrieval",
    "translation",
    "math",
    DEFAULT_CATEGORY,
)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _any_of(words: tuple[str, ...]) -> str:
    return "(?:" + "|".join(word.replace("+", r"\+") for word in words) + ")"


_LANGUAGES: Final = _words("""
    english french german spanish italian portuguese dutch polish czech danish swedish norwegian finnish hungarian
    romanian greek turkish russian ukrainian arabic hebrew persian hindi bengali urdu tamil thai vietnamese indonesian
    chinese mandarin japanese korean latin
""")
_LANGUAGE: Final = _any_of(_LANGUAGES)

_PROGRAMMING_LANGUAGES: Final = _words("""
    python javascript typescript java kotlin golang rust ruby php perl scala haskell lua bash powershell sql cobol
    fortran c++ c# matlab pytorch numpy pandas
""")

_CODE_WORDS: Final = _words("""
    def elif const struct printf println stdin stdout stderr traceback stacktrace segfault typeerror valueerror keyerror
    attributeerror importerror nullpointerexception regex regexp codebase refactoring debugger compiler compile linter
    github gitlab git npm yarn pip pytest junit jest webpack docker dockerfile kubernetes kubectl helm terraform ansible
    nginx postgres postgresql mysql sqlite mongodb redis graphql kafka django flask fastapi react angular nextjs nodejs
    node svelte html css scss jsx tsx async await mutex goroutine malloc nullptr makefile cmake bash shell cron systemd
    crontab venv dataframe sqlalchemy tensorflow cuda leetcode vim neovim emacs vscode tmux ssh curl grep sed awk linux
    ubuntu aws ec2 s3 azure gcp lambda webhook oauth jwt cors localhost hashmap enum tuple boolean gradle maven cargo
    rebase repo ffmpeg unittest stacktraces backend frontend middleware serializer orm pod pods div flexbox tailwind
    mongoose jquery laravel rails dom paginate iframe href vite prisma subprocess stdlib
""")

_EDIT_VERBS: Final = """
    fix correct improve edit revise change replace remove delete clean polish tidy update modify simplify extend expand
    continue add insert
"""

_ASKED: Final = (
    r"\A\n(?:(?:please|pls|plz|hey|hi|ok|now|then|just|can you|could you|would you|will you|help me|i want you to"
    r"|i need you to|i'd like you to)[ ,]{1,2}){0,3}"
)
"""A message's start, and what people say before the verb."""

DEFAULT_RULES: Final = (
    CategoryRule("structured", response_format="*"),
    # Translation; but from one programming language to another it is code.
    CategoryRule(
        "code",
        words=_PROGRAMMING_LANGUAGES,
        pattern="translate |convert |port |rewrite |migrate ",
    ),
    CategoryRule(
        "translation",
        words=_words("""
            translate translates translated translating translation traduce traduis traduire traduisez traducir traduz
            traduza traduzir traduci tradurre übersetze übersetzen Übersetze Übersetzen übersetzung vertaal przetłumacz
            переведи översätt
        """),
    ),
    # A given text made shorter. Without a text ("summarize Hamlet") it is a question like any other.
    CategoryRule(
        "summarization",
        min_characters=200,
        words=_words("""
            summarize summarise summarized summarised summarizing summary summaries tldr recap takeaways takeaway gist
            condense condensed nutshell digest synopsis abridge abridged highlights essence
        """),
    ),
    CategoryRule("summarization", min_characters=200, words=("tl",), pattern="tl;dr|tl dr"),
    CategoryRule(
        "summarization",
        min_characters=300,
        words=_words("""
            point points idea ideas message finding findings fact facts argument arguments contributions minutes boil
            sum version brief overview abstract items say
        """),
        pattern=(
            "key point|main point|main idea|key idea|main message|key finding|main finding|key fact|important point"
            "|main argument|main contribution|minutes of|minutes from|boil this|boil it|sum up|sum this|sum it"
            "|short version|shorter version|brief overview|short overview|brief version|brief abstract|short abstract"
            "|abstract for|action items|does it say|does this say"
        ),
    ),
    CategoryRule(
        "summarization",
        min_characters=400,
        words=_words("sentence sentences bullet bullets paragraph line lines"),
        pattern=(
            r"[ \n](?:in|as|max|than|most|with) (?:a |an |about )?"
            r"(?:one|two|three|four|five|few|single|short|\d{1,2}|bullet)"
            r"(?: (?:to|or|short|bullet|simple|two|three|four|five|\d{1,2})){0,3}"
            r" (?:sentence|bullet|paragraph|line|point)"
        ),
    ),
    # A given text rewritten or extended, code as well.
    CategoryRule(
        "edit",
        min_characters=60,
        words=_words("""
            rewrite reword rephrase paraphrase proofread proofreading copyedit refactor grammar grammatical typo typos
            spelling shorten rename reformat
        """),
    ),
    CategoryRule(
        "edit",
        min_characters=60,
        words=_words("more less shorter longer clearer friendlier simpler better"),
        pattern=(
            r"make (?:the|this|it|my|our|that|these) [^\n]{0,60}(?:more|less|sound|shorter|longer|clearer|friendlier"
            r"|simpler|better)[ \n,.:]|sounds? (?:more|less|better)"
        ),
    ),
    CategoryRule(
        "edit",
        min_characters=60,
        words=_words("text paragraph sentence sentences email message letter essay draft section"),
        pattern=(
            r"[ \n](?:fix|correct|improve|revise|change|replace|convert|turn|put|expand|continue|make|adapt|rework)\b"
            r"[^\n]{0,60}"
            r"[ \n](?:this|these|my|our|the following|the) (?:[a-z]{1,12} ){0,1}"
            r"(?:text|paragraph|sentences?|email|message|letter|essay|draft|section)\b"
            r"|[ \n](?:in|of) (?:this|my|the following) (?:text|paragraph|email|letter|essay|draft|code),? "
            r"(?:fix|correct|improve|change|replace|convert|turn|put|remove|add)\b"
        ),
    ),
    CategoryRule(
        "edit",
        min_characters=60,
        words=_words(_EDIT_VERBS),
        where="opening",
        pattern=(
            rf"{_ASKED}{_any_of(_words(_EDIT_VERBS))} (?:up )?"
            r"(?:the|this|these|that|every|each|all|any|my|our|a|an|type|error|comments|docstrings)\b"
        ),
    ),
    # Code to be written comes before structured output: "write a function that returns JSON".
    CategoryRule(
        "code",
        words=_words("""
            function functions script scripts algorithm query queries oneliner liner dockerfile makefile endpoint
            website webpage api cli crud code snippet parser decorator
        """),
        pattern=(
            "write|complete|implement|creat|need|give me|develop|build|generate|finish|show me|make|design"
            "|how do i|how to"
        ),
    ),
    CategoryRule(
        "code",
        words=_words(
            "program class method test tests module component page app hook macro cache server client library"
        ),
        pattern=(
            r"[ \n](?:write|implement|create|develop|build|code|generate|complete|finish|design|add)"
            r"(?: [a-z0-9-]{1,15}){0,4}"
            r" (?:program|class|method|(?:unit )?tests?|module|component|html page|web page|app|hook|macro|cache|server"
            r"|client|library)\b|unit tests?"
        ),
    ),
    CategoryRule(
        "structured",
        words=_words("json jsonl csv yaml xml toml table comma tab rows extract"),
        pattern=(
            r"[ \n(](?:(?:as|in|into|to|with|a|an|me|valid|returns?|output|only|the|one|markdown"
            r"|create|make|generate|need) (?:[a-z]{1,10} ){0,2}"
            r"(?:jsonl?|csv|yaml|xml|toml|table)\b|(?:comma|tab)[- ]separated|\d{1,6} rows|rows of"
            r"|extract (?:the|all|every|any|names|each) |(?:json|csv|yaml):)"
        ),
    ),
    CategoryRule(
        "structured",
        words=_words(
            "classify label labels categorize categorise sentiment tag key value reply answer respond word only"
        ),
        pattern=(
            "classify|label each|label the|label this|label these|categorize|categorise|sentiment of|as positive"
            "|tag each|tag the|labels:|key: value|key-value|key value pairs|true or false|yes or no|with one word"
        ),
    ),
    CategoryRule("code", where="user", pattern="```"),
    CategoryRule(
        "structured", words=_words("only answer return reply output respond format"), pattern=r"\{ ?\"|\[\.\.\.\]|\": "
    ),
    CategoryRule("code", words=(*_CODE_WORDS, *_PROGRAMMING_LANGUAGES)),
    CategoryRule(
        "code",
        words=_words(
            "linked binary hash complexity loop race pointer variable command merge pull stack array unit compile api"
        ),
        pattern=(
            "linked list|binary tree|binary search|search tree|hash map|hash table|time complexity|space complexity"
            "|for loop|while loop|race condition|null pointer|environment variable|command line|merge conflict"
            "|pull request|stack overflow|stack trace|an array|the array|unit test|rest api| api "
        ),
    ),
    CategoryRule("code", pattern=r"\);|==|&&|=>|::|/>|\) \{|error:|exception:"),
    CategoryRule(
        "code",
        words=_words("import include function return select public private fn func var let class void int fim"),
        pattern=(
            "\n"
            r"(?:import |from [\w.]{1,40} import|#include|class \w{1,40}[:({]|public |private |func |fn |function |var "
            r"|let |select )|\)[:;] ?\{?"
            "\n"
            r"|<\|?fim|=> \{"
        ),
    ),
    CategoryRule("translation", pattern="翻译|翻訳"),
    CategoryRule(
        "translation",
        words=_LANGUAGES,
        pattern=(
            r"[ \n](?:(?:say|says|said|mean|means|put|render|phrase|word|term|call|called)\b[^\n]{0,160}"
            rf" (?:in|into) (?:[a-z]{{1,12}} ){{0,2}}{_LANGUAGE}\b"
            rf"|into (?:[a-z]{{1,12}} ){{0,2}}{_LANGUAGE}\b"
            rf"|(?:write|have|need|want|give) (?:me )?(?:this|it|that|the following)\b[^\n]{{0,60}} in {_LANGUAGE}\b"
            rf"|(?:in|to) {_LANGUAGE} ?[:\n]"
            rf"|{_LANGUAGE} (?:version|equivalent|word|term|for)\b)"
        ),
    ),
    CategoryRule(
        "translation",
        words=_words("deutsch deutsche englisch englische français anglais español inglés italiano português inglês"),
        pattern=(
            "auf deutsch|auf englisch|ins deutsche|ins englische|en français|en anglais|en español|en inglés|al español"
            "|al inglés|in italiano|em português|para português|em inglês"
        ),
    ),
    # A question about a given text: the answer is mostly copied from it.
    CategoryRule(
        "retrieval",
        min_characters=250,
        words=_words("""
            context based according given read text article document documents doc passage excerpt report only question
            questions following
        """),
        pattern=(
            "context:|based on|according to|using only|only use|the document|the text|the passage|the article"
            "|the context|this passage|this article|this text|this document|this report|the following|excerpt|question:"
            "|the question|my question|given the|read this|read the|text:|document:|doc 1"
        ),
    ),
    CategoryRule("retrieval", min_characters=600, pattern="\\? |\\?\n"),
    CategoryRule(
        "retrieval",
        min_characters=400,
        words=_words("who what when where which why how does did is are was can"),
        pattern=r"\n(?:who|what|when|where|which|why|how|does|did|is|are|was|can) [^\n]{3,110}\n\Z",
    ),
    # Numbers, and a question about what they come to.
    CategoryRule(
        "math",
        min_numbers=2,
        words=_words("""
            many much percent percentage total average sum area volume perimeter calculate compute probability ratio
            remain remaining remainder left cost costs price far fast old time long speed solve simplify factor evaluate
            combined altogether value product difference distance interest odds
        """),
        pattern="how |what |what's|whats |solve|calculate|compute|simplify|evaluate|factor|find ",
    ),
    CategoryRule(
        "math",
        words=("convert", "add", "multiply", "divide", "subtract"),
        pattern=r"(?:convert|add|multiply|divide|subtract) [0-9]",
    ),
    CategoryRule("math", min_numbers=2, words=("what", "whats"), pattern=r"[0-9] ?(?:%|[-+*/^×÷] ?[0-9])"),
    CategoryRule("math", min_numbers=1, min_characters=100, words=("many", "much"), pattern="how many|how much"),
    CategoryRule(
        "math",
        words=_words("""
            half twice double triple dozen third quarter two three four five six seven eight nine ten hundred
        """),
        pattern="how many|how much|how long|how far|how old|what fraction|what percent|probability of|probability that",
    ),
    CategoryRule(
        "math",
        words=_words("""
            prove derivative integral antiderivative solve equation equations inequality polynomial eigenvalue
            eigenvalues determinant factorize roots prime factors
        """),
        pattern=(
            "prove that|prove the|derivative of|integral of|solve for|solve the equation|the inequality|polynomial"
            "|eigenvalue|determinant of|equation x|equation y|factorize|roots of|prime number|prime factor|factors of"
        ),
    ),
    # Nothing in the message says what it is, but the system prompt, the model or the tools may.
    CategoryRule("translation", where="system", pattern="translate"),
    CategoryRule("summarization", where="system", pattern="summarize|summarise"),
    CategoryRule("code", where="system", pattern="coding|programmer|software engineer|code completion"),
    CategoryRule("code", model="*code*"),
    CategoryRule("structured", has_tools=True),
)
