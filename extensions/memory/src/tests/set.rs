//! Facts and questions that were written by hand, and thousands of other facts that are made of the same words, about other people:
//! whoever only knows that a question is about a sister finds hundreds of them.

/// A fact, and questions that it answers.
pub const LABELLED: &[(&str, &[&str])] = &[
    (
        "The user's sister is called Mara.",
        &["what is my sister called", "what's my sister's name?", "my sister"],
    ),
    (
        "The user's daughter Ida was born on 3 May 2019.",
        &["When was Ida born?", "how old is my daughter", "birthday of my daughter"],
    ),
    (
        "The user is allergic to hazelnuts and penicillin.",
        &["Can I eat hazelnut spread?", "which allergies do I have", "am i allergic to penicillin"],
    ),
    (
        "The user works as a bridge engineer for the city of Rotterdam.",
        &["Where do I work?", "bridge engineering Rotterdam", "which city employs the bridge engineer"],
    ),
    (
        "The user prefers answers in metric units.",
        &["convert this recipe to metric", "which units do I prefer?"],
    ),
    (
        "The user's car is a green 1998 Saab 900 with registration KX-41-LP.",
        &["What is the registration of my Saab?", "what colour is my car", "KX-41-LP"],
    ),
    (
        "The wifi password of the cabin at Lake Orta is stuck on the fridge.",
        &["how do I get wifi at the cabin", "cabin lake Orta password"],
    ),
    (
        "The user's dentist is Dr. Oyelaran in Harbour Street, on the second floor.",
        &["who is my dentist?", "I need an appointment with my dentist", "Harbour street second floor"],
    ),
    (
        "The user plays the cello in an amateur quartet on Wednesdays.",
        &["Which instrument do I play?", "when does the quartet rehearse", "playing cello"],
    ),
    (
        "Backups of the photo archive run at night from the NAS called Basalt.",
        &["when are photos backed up", "what runs on basalt", "photo archive backup"],
    ),
    (
        "Production deploys are frozen from 18 December to 6 January.",
        &["can we deploy in production on 20 December", "deployment freeze", "frozen deploys"],
    ),
    (
        "The user's mother moved to Gdańsk after she retired.",
        &["where does my mother live now", "Gdansk", "mother retirement move"],
    ),
    (
        "The user's favourite restaurant is the Tin Kettle because of its dumplings.",
        &["where should we eat dumplings", "my favourite restaurant", "Tin kettle"],
    ),
    (
        "The repository of the invoicing service is named ledgerling and uses PostgreSQL 17.",
        &[
            "which database does ledgerling use",
            "name of the invoicing repository",
            "postgresql version invoicing",
        ],
    ),
    (
        "The user runs marathons and wants to finish one below 3:30.",
        &["what is my marathon goal", "running a marathon"],
    ),
    (
        "Der Benutzer trinkt seinen Kaffee schwarz und ohne Zucker.",
        &["Wie trinke ich meinen Kaffee?", "Kaffee mit Zucker?"],
    ),
    (
        "Der Zahnarzt des Benutzers heißt Dr. Brückner und hat freitags geschlossen.",
        &["Wann hat der Zahnarzt zu?", "Wie heißt mein Zahnarzt", "Dr. Bruckner"],
    ),
    (
        "Die Schwester des Benutzers wohnt in Würzburg.",
        &["Wo wohnt meine Schwester?", "Wuerzburg oder Würzburg", "Schwestern"],
    ),
    (
        "L'utilisateur est végétarien depuis 2015.",
        &["Est-ce que je suis végétarien ?", "plats vegetariens", "depuis quand suis-je végétarien"],
    ),
    (
        "El perro del usuario se llama Canelo y tiene miedo a los truenos.",
        &["¿Cómo se llama mi perro?", "perros y truenos"],
    ),
    (
        "O usuário mora no Porto e trabalha em São João da Madeira.",
        &["onde eu trabalho", "Sao Joao da Madeira"],
    ),
    ("用户的妹妹叫玛拉，住在杭州。", &["我妹妹叫什么名字？", "杭州", "妹妹住在哪里"]),
    ("ユーザーは毎朝六時に犬の散歩をする。", &["犬の散歩はいつ？", "散歩"]),
    ("Пользователь учит финский язык по вечерам.", &["какой язык я учу?", "финского языка"]),
];

const FIRST: &[&str] = &[
    "Anna", "Ben", "Carla", "Dmitri", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Kira", "Luca",
    "Mila", "Nils", "Olga", "Pavel", "Quentin", "Rosa", "Stefan", "Tara", "Umar", "Vera", "Wanda", "Xenia",
    "Yusuf", "Zoe",
];
const LAST: &[&str] = &[
    "Abel", "Berg", "Costa", "Dahl", "Ekholm", "Fischer", "Garcia", "Huber", "Ivanov", "Jansen", "Keller",
    "Lindgren", "Moreau", "Novak", "Okafor", "Petrov", "Quist", "Rossi", "Schmidt", "Tanaka", "Ueda",
    "Vogel", "Weber", "Xu", "Yilmaz", "Zeman",
];
const CITIES: &[&str] = &[
    "Lisbon",
    "Oslo",
    "Vienna",
    "Hamburg",
    "Turin",
    "Leeds",
    "Ghent",
    "Malmö",
    "Brno",
    "Porto",
    "Rotterdam",
    "Nice",
];
const THINGS: &[&str] = &[
    "tea",
    "coffee",
    "dumplings",
    "cheese",
    "jazz",
    "opera",
    "chess",
    "football",
    "gardens",
    "trains",
    "maps",
    "novels",
    "photos",
    "marathons",
    "cello music",
    "old cars",
    "dogs",
    "nuts",
    "metric screws",
    "bridges",
];
const WORK: &[&str] = &[
    "engineer", "teacher", "dentist", "nurse", "baker", "lawyer", "designer", "gardener", "pilot", "cook",
    "driver", "editor",
];
/// `{p}` is a person, `{q}` another, `{c}` a city, `{t}` a thing, `{w}` a profession, `{d}` a day, `{n}` a number.
const OTHERS: &[&str] = &[
    "{p}'s sister is called {q}.",
    "{p} lives in {c} and works as a {w}.",
    "{p} was born on {d}.",
    "{p} is allergic to {t}.",
    "{p} prefers {t} to {t}.",
    "{p}'s car has the registration {n}.",
    "{p}'s daughter plays in {c} on {d}.",
    "The user met {p} at a concert in {c} on {d}.",
    "The user owes {p} {n} euros for {t}.",
    "The user's colleague {p} moved to {c}.",
    "The mother of {p} retired on {d}.",
    "{p} recommended a restaurant for {t} in {c}.",
    "The service of {p}'s team is deployed on {d} and listens on port {n}.",
    "The password hint of {p}'s archive is the number {n}.",
    "{p} runs a backup of {t} at {n} o'clock.",
    "Der Bruder von {p} wohnt in {c} und trinkt {t}.",
    "{p} et {q} habitent à {c} depuis {n}.",
    "{p} y su perro viven en {c}.",
    "{p} asked the user to bring {t} on {d}.",
    "The phone number of {p}, a {w} in {c}, ends with {n}.",
];

/// Made of numbers that follow from the one before, so that each run has the same.
fn others(count: usize) -> Vec<String> {
    let mut state: u64 = 11;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).expect("it fits") % below
    };
    (0..count)
        .map(|_| {
            let mut text = OTHERS[next(OTHERS.len())].to_owned();
            while let Some(at) = text.find('{') {
                let with = match &text[at..at + 3] {
                    "{p}" | "{q}" => format!("{} {}", FIRST[next(FIRST.len())], LAST[next(LAST.len())]),
                    "{c}" => CITIES[next(CITIES.len())].to_owned(),
                    "{t}" => THINGS[next(THINGS.len())].to_owned(),
                    "{w}" => WORK[next(WORK.len())].to_owned(),
                    "{d}" => format!(
                        "{} {}",
                        next(28) + 1,
                        ["January", "March", "May", "July", "December"][next(5)]
                    ),
                    _ => (next(90_000) + 1000).to_string(),
                };
                text.replace_range(at..at + 3, &with);
            }
            text
        })
        .collect()
}

/// So many facts, with those of the set between them.
pub fn facts(count: usize) -> Vec<String> {
    let mut texts = others(count - LABELLED.len());
    for (at, (fact, _)) in LABELLED.iter().enumerate() {
        texts.insert((at + 1) * texts.len() / (LABELLED.len() + 1), (*fact).to_owned());
    }
    texts
}
