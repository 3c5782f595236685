-- Surveys of the two users of examples/platform, 1001 and 1002, and answers to them.
INSERT OR REPLACE INTO surveys (id, owner, hash, title, state, details) VALUES
  (501, '1001', 'a501', 'Team lunch', 2, '{"scene":"SURVEY_SCENE_SURVEY","createTime":"2026-03-02T08:00:00Z",
    "updateTime":"2026-03-02T09:30:00Z","prefix":"Two questions, one minute.","suffix":"See you there.","pages":[{"id":"p-1","index":"1",
    "questions":[{"id":"q-1","index":1,"type":"radio","title":"Where?","required":true,
      "options":[{"id":"o-1","text":"Canteen"},{"id":"o-2","text":"Garden"}]},
    {"id":"q-2","index":2,"type":"star","title":"How was the last one?","starNum":5,"starBeginNum":1}]}]}'),
  (502, '1001', 'a502', '满意度调查', 1, '{"scene":"SURVEY_SCENE_SURVEY","createTime":"2026-04-01T00:00:00Z",
    "updateTime":"2026-04-01T00:00:00Z","pages":[{"id":"p-1","index":"1",
    "questions":[{"id":"q-1","index":1,"type":"textarea","title":"您的建议"}]}]}'),
  (601, '1002', 'b601', 'Parking', 3, '{"scene":"SURVEY_SCENE_VOTE","createTime":"2026-05-01T00:00:00Z",
    "updateTime":"2026-05-01T00:00:00Z","pages":[{"id":"p-1","index":"1",
    "questions":[{"id":"q-1","index":1,"type":"text","title":"Your licence plate"}]}]}');

-- Forty, a minute apart from 2026-03-03 12:00 UTC.
INSERT OR REPLACE INTO answers (survey_id, answer_id, respondent, end_time, details)
  WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40)
  SELECT 501, i, 'r-' || (i % 30), 1772539200 + i * 60,
    json_object('startTime', strftime('%Y-%m-%dT%H:%M:%SZ', 1772539170 + i * 60, 'unixepoch'), 'pages', json_array(json_object(
      'id', 'p-1', 'questions', json_array(
        json_object('id', 'q-1', 'type', 'radio', 'options', json_array(json_object('id', 'o-1', 'text', 'Canteen'))),
        json_object('id', 'q-2', 'type', 'star', 'text', CAST(1 + i % 5 AS TEXT))))))
  FROM n;
INSERT OR REPLACE INTO answers (survey_id, answer_id, respondent, end_time, details) VALUES
  (601, 1, 'r-1', 1777680000, '{"pages":[{"id":"p-1","questions":[{"id":"q-1","type":"text","text":"B 601"}]}]}');
