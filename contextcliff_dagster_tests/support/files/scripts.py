"""Prose of many scripts, made from words so that no sentence is like another."""

from __future__ import annotations

import random

SCRIPTS = {
    "english": ("harbour lantern silver morning captain quiet window letter garden stone river "
                "market evening shadow winter promise bridge orchard traveller copper", " ", ". "),
    "german": ("Straße Fluss Häuser Übung größer Schlüssel Wälder Brücke fröhlich Mädchen Öfen "
               "Gärten Abend Morgen Zucker Wasser Licht Fenster König Flügel", " ", ". "),
    "russian": ("Гавань фонарь утро капитан окно письмо Сад камень река рынок вечер тень зима "
                "мост Город дорога свет вода хлеб дерево", " ", ". "),
    "arabic": ("الميناء المصباح الصباح القبطان النافذة الرسالة الحديقة الحجر النهر السوق المساء "
               "الظل الشتاء الجسر المدينة الطريق الضوء الماء الخبز الشجرة", " ", "؟ "),
    "hindi": ("बंदरगाह दीपक सुबह कप्तान खिड़की चिट्ठी बगीचा पत्थर नदी बाज़ार शाम छाया सर्दी पुल शहर "
              "रास्ता रोशनी पानी रोटी पेड़", " ", "। "),
    "chinese": ("港口 灯笼 早晨 船长 窗户 信件 花园 石头 河流 "
                "市场 傍晚 影子 冬天 桥梁 城市 道路 光线 面包 树木 铜器",
                "", "。"),
    "japanese": ("みなと ランプ 朝の光 船長は 窓から 手紙を 庭に 石の 川が "
                 "市場で 夕方 影と 冬の 橋を 町へ 道に 水と パンを 木の下 銅貨", "", "。"),
    "korean": ("항구에서 등불을 아침이 선장은 창문을 편지가 정원에 돌을 강물이 시장에서 "
               "저녁에 그림자 겨울의 다리를 도시는 길에서 빛이 물을 빵과 나무", " ", ". "),
}  # fmt: skip
"""By name: words, what comes between two, and what ends a sentence."""


def prose(script: str, *, sentences: int, seed: int = 0) -> str:
    """That many sentences in paragraphs of five, the same for the same seed."""
    words, between, end = SCRIPTS[script]
    known = words.split()
    chance = random.Random(f"{script} {seed}")
    made = []
    for number in range(sentences):
        chosen = [chance.choice(known) for _ in range(chance.randint(9, 11))]
        sentence = between.join(chosen)
        made.append(sentence[:1].upper() + sentence[1:] + end)
        if number % 5 == 4:
            made.append("\n\n")
    return "".join(made)
