//! Texts as words: what goes into the index, what a question is looked up by, and what two texts share that say the same.
//!
//! A question becomes words and nothing else: no sign of it reaches SQLite's language for queries. Scripts that put no
//! spaces between words are taken in pairs of characters, which finds a word of them without a dictionary.

use std::{collections::HashSet, sync::LazyLock};

/// Words of one question that are looked up. Where it has more, such as a document with a question before or behind it, the
/// first and the last are.
const LOOKED_UP: usize = 32;

/// What questions and sentences are built with, in eight languages. No search is about these; where a question has nothing
/// else, they are looked up all the same. Words that mean something in another one of the languages are left out.
const FUNCTION_WORDS: &str = "
a about after all am an and any are as at be been before being but by can could did do does for from get had has have he her hers him
his how i if in into is it its just let like may me mine more most much my of on or our out over please she should so some such tell than
that the their them then there these they this those to too us was we were what when where which who whom whose why will with would you
your yours s t ll re ve d m user users called named name remember know again
aber als am an auch auf aus bei bin bist das dass dein deine deinen dem den denn der des die dies diese dieser du ein eine einem einen einer
er es euer für hat hatte hast habe haben heißt heisst ich ihm ihn ihr ihre im in ist ja kann kannst mein meine meinem meinen meiner mich mir
mit nach noch nur oder schon sein seine seinen sich sie sind so um und uns unser unsere vom von vor wann warum was welche welcher welches wem
wen wenn wer wessen wie wird wo woher wohin wurde zu zum zur über benutzer nutzer
au aux avec c ce cela ces cet cette comment d dans de des du elle elles en est et eu il ils j je l la le les leur leurs lui m ma mais me
mes moi mon n nos notre nous on ou où par pour pourquoi qu quand que quel quelle quelles quels qui quoi sa se ses son sont sur ta te tes
toi ton tu un une utilisateur vos votre vous y à été être appelle
al como con cual cuál cuales cuando cuándo cuyo de del donde dónde el ella ellas ellos en entre es esa ese eso esta este esto está fue ha
hay la las le les llama lo los me mi mis muy más nos nuestra nuestro o para pero por porque que qué quien quién quiénes se ser si sobre son
soy su sus también tengo tiene tu tus un una uno unos usuario ya yo y
agli ai alla alle che chi chiama ci come cui da dal dei del della delle di dove e ed era essere gli ho i il io lei lo loro lui ma mia mie miei mio
nei nel nella noi non perché più quale quali quando questa questo se sei si sono sua sue suo suoi ti tra tuo un una utente voi è
ao aos as até com como da das de dele do dos e ela ele em essa esse esta este eu foi isso já la mais mas meu meus minha minhas na nas nos não o
onde os ou para pela pelo por porque qual quais quando que quem se sem seu seus sua suas são também tem tenho uma um você é usuário
aan als ben bij daar dan dat de der deze die dit door een en er gaat had hebben heb heeft heet het hij hoe hun ik in is je jij jouw kan maar
met mij mijn naar niet nog of om onder ons ook op over te toen uit van voor waar waarom wanneer wat welke wie wij worden ze zich zij zijn zo
czy dla do gdzie i jak jaka jaki jest jestem kiedy kto który ma mam mi mnie moja moje moim mój na nie o od po się są to w z za że
";

/// How whoever asks speaks of themselves.
const FIRST_PERSON: &str = "i me my mine myself ich mich mir mein meine meinem meinen meiner je j moi mon ma mes yo mi mis mí io mio mia miei mie eu meu minha
meus minhas ik mij mijn mnie mój moja moje moim 我 私 俺 僕";

/// And what facts call them.
const USER: &str = "user users benutzer benutzers benutzerin nutzer nutzers utilisateur utilisateurs utilisatrice usuario usuaria utente usuário gebruiker
użytkownik użytkownika 用户 ユー";

/// What a sentence may have or not without saying something else.
const ARTICLES: &str =
    "a an the der die das ein eine einen el la los las un una il lo gli le les l une de het een os um uma s";

/// The words of a text, in lower case and in order.
pub fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut run: Vec<char> = Vec::new();
    for c in text.chars() {
        let spaceless = is_spaceless(c);
        if !spaceless && !run.is_empty() {
            pairs(&std::mem::take(&mut run), &mut words);
        }
        if (spaceless || !is_part(c)) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if spaceless {
            run.push(c);
        } else if is_part(c) && !is_accent(c) {
            word.extend(c.to_lowercase().filter(|c| !is_accent(*c)));
        }
    }
    pairs(&run, &mut words);
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

/// A text as it goes into the index.
pub fn indexed(text: &str) -> String {
    words(text).join(" ")
}

/// What two texts share that say the same: their words in order, without articles. Anything else may make another fact of
/// it: a name, a number, a "not", and who of two is the older.
pub fn likeness(text: &str) -> String {
    let all = words(text);
    let mut kept: Vec<&str> =
        all.iter().map(String::as_str).filter(|word| !is_among(ARTICLES, word)).collect();
    if kept.is_empty() {
        kept = all.iter().map(String::as_str).collect();
    }
    match kept.is_empty() {
        // A text of signs alone is like itself.
        true => text.to_owned(),
        false => kept.join(" "),
    }
}

/// What a question is looked up by.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LookUp {
    /// Its words, each once, without those that no question is about.
    pub words: Vec<String>,
    /// Whether it speaks of whoever asks, of whom facts say "the user".
    pub of_user: bool,
}

/// What a question is looked up by. One that is about nothing has no words.
pub fn question(text: &str) -> LookUp {
    let mut question = LookUp::default();
    for word in words(text) {
        question.of_user |= is_among(FIRST_PERSON, &word) || is_among(USER, &word);
        if !is_function_word(&word) && !question.words.contains(&word) {
            question.words.push(word);
            if question.words.len() > LOOKED_UP {
                // The first half stays, the second moves on.
                question.words.remove(LOOKED_UP / 2);
            }
        }
    }
    question
}

/// The same of somebody who searches: where it has nothing but words that it is not about, it is about the user, or about these.
pub fn search(text: &str) -> LookUp {
    let mut question = question(text);
    if question.words.is_empty() {
        question.words = match question.of_user {
            true => users().map(str::to_owned).collect(),
            false => words(text),
        };
        question.words.truncate(LOOKED_UP);
        question.words.sort();
        question.words.dedup();
    }
    question
}

/// What facts call the user.
pub fn users() -> impl Iterator<Item = &'static str> {
    USER.split_whitespace()
}

/// One line, without characters that steer a terminal or turn text, so that a fact can pass for no more than one.
pub fn line(text: &str) -> String {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    text.split(|c: char| c.is_whitespace() || steers(c))
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

fn is_among(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|one| one == word)
}

/// A message may have a hundred thousand words, and each is looked for among these.
fn is_function_word(word: &str) -> bool {
    static ALL: LazyLock<HashSet<&str>> = LazyLock::new(|| FUNCTION_WORDS.split_whitespace().collect());
    ALL.contains(word)
}

/// Pairs of neighbours, and the last one alone: so that each character begins something.
fn pairs(run: &[char], words: &mut Vec<String>) {
    words.extend(run.windows(2).map(|pair| pair.iter().collect::<String>()));
    words.extend(run.last().map(char::to_string));
}

/// Characters of scripts without spaces between words: Thai, Lao, Myanmar, Khmer, kana, Han.
fn is_spaceless(c: char) -> bool {
    c.is_alphanumeric()
        && matches!(c, '\u{0e00}'..='\u{0eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{3040}'..='\u{30ff}'
            | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3134f}')
}

/// Letters and digits, with marks that belong to the letter before them.
fn is_part(c: char) -> bool {
    c.is_alphanumeric()
        || is_accent(c)
        || matches!(c, '\u{0483}'..='\u{0489}' | '\u{0591}'..='\u{05bd}' | '\u{064b}'..='\u{065f}' | '\u{0900}'..='\u{0963}' | '\u{0966}'..='\u{0dff}')
}

/// A mark over or under a letter that has come apart from it.
fn is_accent(c: char) -> bool {
    matches!(c, '\u{0300}'..='\u{036f}')
}
