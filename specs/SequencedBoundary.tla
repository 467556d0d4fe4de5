------------------------- MODULE SequencedBoundary -------------------------
(***************************************************************************)
(* Sequenced objects, the boundary behind which they are collected, and    *)
(* the pins that hold them (hazards S1 to S4).  README.md beside this file *)
(* says how to read and to run it.                                         *)
(*                                                                         *)
(* An object has an id, the ULID of its write, and the ULID of the object  *)
(* before it.  Create-if-absent of the next id is the commit.  Collectors  *)
(* delete old objects, so an id can be free again: the boundary remembers  *)
(* that it was used.  Each step of an actor is one request to the store,   *)
(* or a decision on its answer; between two steps it may stall for ever,   *)
(* which is how a crash is modelled too.                                   *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Writes,      \* one process for each write: a write IS its ULID
    Prior,       \* writes that are committed when it all begins
    Readers,     \* processes that only ask for the latest object
    Collectors,
    Pins,        \* one process for each pin: a pin IS its ULID; a renewal is two of them
    Nobody,      \* what the first object names as its predecessor
    MaxId,       \* ids beyond this one are not written
    Faults,      \* what the world may do to us
    Flaws        \* rules that are left out, to see that TLC misses them

FaultNames == {
    "answers are lost",      \* a put's effect happens now, later, or never, and the writer is not told
    "hints are stale",       \* a read of the latest object may start from any object
    "client repeats puts",   \* the HTTP client repeats a put on its own after a lost answer
    "lists have pages",      \* a list of objects is two requests, and things happen in between
    "pin answers are lost"}  \* the same for the puts of pin records, and their clients repeat them

FlawNames == {
    "NoCheckAfterCreate", "StaleIsConflict", "ForeignBehindBoundaryIsConflict", "LostTakesNewId",
    "TrustExists", "ConflictTakesNextId", "BoundaryReadBeforeObject", "BoundaryReadBeforeProbe", "BlindAdvance",
    "DeleteWithoutAdvance", "LatestIsOldToo", "PinsReadBeforeAdvance", "TimeTakenAfterRecords",
    "AskedAfterBoundary", "AskedPinsVouch", "ClockReadBeforePins", "GrantRevives", "RecordDroppedAheadOfBoundary",
    "RepeatsLookAlike"}

ASSUME Faults \subseteq FaultNames /\ Flaws \subseteq FlawNames /\ MaxId \in Nat /\ Prior \subseteq Writes

VARIABLES
    obj,         \* what the store holds: id -> object, or Empty
    boundary,    \* inclusive; 0 while its file does not exist
    flight,      \* puts whose answer was lost: each may land at any time, as often as it likes
    history,     \* ghost: the ULIDs that were committed, in order
    actor,       \* writes and readers
    collector,
    pin,         \* what the client of a pin knows
    records,     \* what the store holds: id -> all pins of the object, in one record, or NoRecord
    ended,       \* pins whose end has passed
    late         \* puts of records whose answer was lost, and which have not landed yet

pins == <<pin, records, ended, late>>
vars == <<obj, boundary, flight, history, actor, collector, pins>>

Actors == Writes \cup Readers
Ids == 1 .. MaxId
Empty == [ulid |-> Nobody, prev |-> Nobody]
Exists(i) == obj[i] # Empty
Live == {i \in Ids : Exists(i)}
Max(S) == IF S = {} THEN 0 ELSE CHOOSE x \in S : \A y \in S : y <= x
Min(S) == CHOOSE x \in S : \A y \in S : y >= x
Newest == Len(history)

\* `at`, `saw`: id and ULID of the object that was read; `since`: the head of history when the read began;
\* `edge`: where a page ends, or the boundary as a flawed reader remembers it; `lost`: a put's answer was.
Resting == [pc |-> "start", at |-> 0, saw |-> Nobody, since |-> 0, edge |-> 0, lost |-> FALSE]
Ended(outcome) == [Resting EXCEPT !.pc = outcome]
\* `todo`: ids to be deleted; `seen`: the boundary that was read, or where a page ends; `over`: pins that had ended
\* when the time was taken; `unlisted`, `unread`: ids whose records are still to be listed, and then to be read.
NoCollection == [pc |-> "start", todo |-> {}, seen |-> 0, over |-> {}, unlisted |-> {}, unread |-> {}]
\* `vouch`: the other pins that were granted in the record as it was swapped.
NoPin == [pc |-> "start", id |-> 0, ulid |-> Nobody, vouch |-> {}]
NoRecord == [ulid |-> Nobody, pins |-> {}, granted |-> {}, revision |-> <<0, FALSE>>]

Init ==
    /\ history \in {h \in [1 .. Cardinality(Prior) -> Prior] : \A i, j \in DOMAIN h : h[i] = h[j] => i = j}
    /\ obj = [i \in 1 .. MaxId + 1 |-> IF i \notin DOMAIN history THEN Empty
                ELSE [ulid |-> history[i], prev |-> IF i = 1 THEN Nobody ELSE history[i - 1]]]
    /\ boundary = 0
    /\ flight = {}
    /\ actor = [a \in Actors |-> IF a \in Prior THEN Ended("success") ELSE Resting]
    /\ collector = [c \in Collectors |-> NoCollection]
    /\ pin = [p \in Pins |-> NoPin]
    /\ records = [i \in Ids |-> NoRecord]
    /\ ended = {}
    /\ late = {}

\* A create is a commit if and only if it extends the history above the boundary; anything else is a zombie.
Create(i, ulid, prev) ==
    /\ obj' = [obj EXCEPT ![i] = [ulid |-> ulid, prev |-> prev]]
    /\ history' = IF i > boundary /\ i = Newest + 1 THEN Append(history, ulid) ELSE history

---------------------------------------------------------------------------
(* Reading the latest object: by a list, or from a hint by probing its successors. The boundary is read last. *)

Moves(a, record) == actor' = [actor EXCEPT ![a] = record]

EarlyBoundary(a) ==     \* a flaw: the boundary is read before the object
    /\ "BoundaryReadBeforeObject" \in Flaws
    /\ actor[a].pc = "start"
    /\ Moves(a, [actor[a] EXCEPT !.pc = "open", !.edge = boundary, !.since = Newest])
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pins>>

Opens(a) == actor[a].pc = (IF "BoundaryReadBeforeObject" \in Flaws THEN "open" ELSE "start")
Since(a) == IF actor[a].pc = "open" THEN actor[a].since ELSE Newest

ReadByList(a) ==
    /\ Opens(a)
    /\ Moves(a, [actor[a] EXCEPT !.pc = IF Live = {} THEN "check" ELSE "fetch", !.at = Max(Live), !.since = Since(a)])
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pins>>

ReadFirstPage(a) ==
    /\ "lists have pages" \in Faults
    /\ Opens(a)
    /\ \E end \in 1 .. MaxId - 1 :
         Moves(a, [actor[a] EXCEPT !.pc = "page", !.at = Max(Live \cap (1 .. end)), !.since = Since(a), !.edge = end])
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pins>>

ReadSecondPage(a) ==
    LET latest == Max({actor[a].at} \cup {i \in Live : i > actor[a].edge}) IN
    /\ actor[a].pc = "page"
    /\ Moves(a, [actor[a] EXCEPT !.pc = IF latest = 0 THEN "check" ELSE "fetch", !.at = latest, !.edge = 0])
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pins>>

Again(a) == Moves(a, [Resting EXCEPT !.lost = actor[a].lost])

Fetch(a) ==
    /\ actor[a].pc = "fetch"
    /\ IF Exists(actor[a].at)
       THEN Moves(a, [actor[a] EXCEPT !.pc = "check", !.saw = obj[actor[a].at].ulid])
       ELSE Again(a)
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pins>>

ReadByHint(a) ==
    /\ "hints are stale" \in Faults
    /\ Opens(a)
    /\ \E i \in Live :
         Moves(a, [actor[a] EXCEPT !.pc = "probe", !.at = i, !.saw = obj[i].ulid, !.since = Since(a)])
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pins>>

\* A flaw: the boundary is read once, after the hinted object but before its successors are asked for.
EarlyProbeBoundary(a) ==
    /\ "BoundaryReadBeforeProbe" \in Flaws
    /\ actor[a].pc = "probe"
    /\ Moves(a, [actor[a] EXCEPT !.pc = "probe further", !.edge = boundary])
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pins>>

Probe(a) ==
    LET next == actor[a].at + 1 IN
    /\ actor[a].pc = (IF "BoundaryReadBeforeProbe" \in Flaws THEN "probe further" ELSE "probe")
    /\ Moves(a, IF Exists(next) THEN [actor[a] EXCEPT !.at = next, !.saw = obj[next].ulid]
                                ELSE [actor[a] EXCEPT !.pc = "check"])
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pins>>

\* The object counts only if the boundary, read after it, is below it; otherwise everything starts again.
Check(a) ==
    LET early == {"BoundaryReadBeforeObject", "BoundaryReadBeforeProbe"} \cap Flaws # {}
        edge == IF early THEN actor[a].edge ELSE boundary IN
    /\ actor[a].pc = "check"
    /\ IF edge < actor[a].at \/ (actor[a].at = 0 /\ edge = 0)
       THEN Moves(a, [actor[a] EXCEPT !.pc = "latest", !.edge = 0])
       ELSE Again(a)
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pins>>

---------------------------------------------------------------------------
(* Writing. `latest` and `again` are the states before a put; the id is one above the object that was read. *)

Target(w) == actor[w].at + 1
BeforePut(w) == actor[w].pc \in {"latest", "again"} /\ Target(w) <= MaxId
Goes(w, pc) == Moves(w, [actor[w] EXCEPT !.pc = pc, !.since = 0])

PutAnswered(w) ==
    /\ BeforePut(w)
    /\ IF ~Exists(Target(w))
       THEN Create(Target(w), w, actor[w].saw) /\ Goes(w, "created")
       ELSE /\ UNCHANGED <<obj, history>>
            /\ CASE actor[w].lost \/ "client repeats puts" \in Faults ->
                      Goes(w, "look")                 \* it may be our own object that is in the way
                 [] "ConflictTakesNextId" \in Flaws ->
                      Moves(w, [actor[w] EXCEPT !.pc = "again", !.at = @ + 1, !.since = 0])
                 [] OTHER -> Moves(w, Ended("conflict"))     \* the only put there ever was has been refused
    /\ UNCHANGED <<boundary, flight, collector, pins>>

Sent(w) == flight' = flight \cup {[id |-> Target(w), ulid |-> w, prev |-> actor[w].saw]}

PutLost(w) ==
    /\ "answers are lost" \in Faults
    /\ BeforePut(w)
    /\ Sent(w)
    /\ Moves(w, [actor[w] EXCEPT !.pc = "look", !.lost = TRUE, !.since = 0])
    /\ UNCHANGED <<obj, boundary, history, collector, pins>>

PutRepeatedByClient(w) ==   \* the writer does not learn that there was more than one
    /\ "client repeats puts" \in Faults
    /\ BeforePut(w)
    /\ Sent(w)
    /\ Goes(w, "again")
    /\ UNCHANGED <<obj, boundary, history, collector, pins>>

Land == \E put \in flight :
    /\ ~Exists(put.id)
    /\ Create(put.id, put.ulid, put.prev)
    /\ UNCHANGED <<boundary, flight, actor, collector, pins>>

\* Who is at the id? Nobody: the same put again, same id and same ULID. (Giving up is standing still.)
Look(w) ==
    LET found == obj[Target(w)].ulid
        mayHaveLanded == actor[w].lost \/ "TrustExists" \notin Flaws IN
    /\ actor[w].pc = "look"
    /\ CASE found = w -> Goes(w, "created")
         [] found # w /\ ~mayHaveLanded -> Moves(w, Ended("conflict"))
         [] found = Nobody /\ mayHaveLanded ->
              IF "LostTakesNewId" \in Flaws THEN Moves(w, [Resting EXCEPT !.lost = TRUE]) ELSE Goes(w, "again")
         [] found \notin {w, Nobody} /\ mayHaveLanded -> Goes(w, "foreign")
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pins>>

\* Our object was there: above the boundary that is success, behind it the successor must tell.
AfterCreate(w) ==
    /\ actor[w].pc = "created"
    /\ CASE Target(w) > boundary \/ "NoCheckAfterCreate" \in Flaws -> Moves(w, Ended("success"))
         [] Target(w) <= boundary /\ "StaleIsConflict" \in Flaws -> Moves(w, Ended("conflict"))
         [] OTHER -> Goes(w, "successor")
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pins>>

\* Somebody else's object was there: above the boundary it is the commit, behind it it may be a zombie.
AfterForeign(w) ==
    /\ actor[w].pc = "foreign"
    /\ IF Target(w) > boundary \/ "ForeignBehindBoundaryIsConflict" \in Flaws
       THEN Moves(w, Ended("conflict"))
       ELSE Goes(w, "successor")
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pins>>

\* Whoever wrote the successor had read its predecessor as the latest, so that one is in the history.
Successor(w) ==
    LET next == obj[Target(w) + 1] IN
    /\ actor[w].pc = "successor"
    /\ Moves(w, Ended(IF next = Empty THEN "unknown" ELSE IF next.prev = w THEN "success" ELSE "conflict"))
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pins>>

---------------------------------------------------------------------------
(* Collecting. Any set of objects without the latest may be old enough; giving up is starting again. *)

Collects(c, record) == collector' = [collector EXCEPT ![c] = record]

\* The time is taken, and then the objects are listed.
Choose(c, listed) == \E old \in SUBSET (IF "LatestIsOldToo" \in Flaws THEN listed ELSE listed \ {Max(listed)}) :
    /\ old # {}
    /\ Collects(c, [NoCollection EXCEPT !.todo = old, !.over = ended, !.unlisted = IF Pins = {} THEN {} ELSE old,
         !.pc = CASE "PinsReadBeforeAdvance" \in Flaws -> "records"
                  [] "DeleteWithoutAdvance" \in Flaws -> "delete"
                  [] OTHER -> "boundary"])

List(c) ==
    /\ collector[c].pc = "start"
    /\ Choose(c, Live)
    /\ UNCHANGED <<obj, boundary, flight, history, actor, pins>>

ListFirstPage(c) ==
    /\ "lists have pages" \in Faults
    /\ collector[c].pc = "start"
    /\ \E end \in 1 .. MaxId - 1 :
         Collects(c, [NoCollection EXCEPT !.pc = "page", !.seen = end, !.todo = Live \cap (1 .. end)])
    /\ UNCHANGED <<obj, boundary, flight, history, actor, pins>>

ListSecondPage(c) ==
    /\ collector[c].pc = "page"
    /\ Choose(c, collector[c].todo \cup {i \in Live : i > collector[c].seen})
    /\ UNCHANGED <<obj, boundary, flight, history, actor, pins>>

\* Where nobody pins, there are no records to read.
AfterAdvance == IF "PinsReadBeforeAdvance" \in Flaws \/ Pins = {} THEN "delete" ELSE "records"
AfterRecords == IF "PinsReadBeforeAdvance" \in Flaws THEN "boundary" ELSE "delete"

ReadBoundary(c) ==
    /\ collector[c].pc = "boundary"
    /\ Collects(c, IF boundary >= Max(collector[c].todo)
                   THEN [collector[c] EXCEPT !.pc = AfterAdvance]
                   ELSE [collector[c] EXCEPT !.pc = "swap", !.seen = boundary])
    /\ UNCHANGED <<obj, boundary, flight, history, actor, pins>>

Swap(c) ==
    /\ collector[c].pc = "swap"
    /\ IF boundary = collector[c].seen \/ "BlindAdvance" \in Flaws
       THEN /\ boundary' = Max(collector[c].todo)
            /\ Collects(c, [collector[c] EXCEPT !.pc = AfterAdvance, !.seen = 0])
       ELSE /\ Collects(c, [collector[c] EXCEPT !.pc = "boundary", !.seen = 0])
            /\ UNCHANGED boundary
    /\ UNCHANGED <<obj, flight, history, actor, pins>>

LosesPins == "pin answers are lost" \in Faults

\* What the record becomes. Each try of a put has bytes of its own, so one whose answer is lost looks different from
\* the one that repeats it: no state of a record comes twice, not even after it was removed.
Revised(i, new, lost) ==
    [new EXCEPT !.revision = IF LosesPins THEN <<records[i].revision[1] + 1, lost /\ "RepeatsLookAlike" \notin Flaws>>
                             ELSE @]

\* A state that was left never comes again, so a late put on the condition of it is forgotten. A create is not.
Becomes(i, new, puts) ==
    /\ records' = [records EXCEPT ![i] = new]
    /\ late' = IF "RepeatsLookAlike" \in Flaws THEN puts
               ELSE {put \in puts : put.id # i \/ put.old \in {NoRecord, new}}

PutRecord(i, new) == Becomes(i, Revised(i, new, FALSE), late)

\* The records are listed after the advance. The list is no snapshot: it sees each record at a moment of its own.
ListRecord(c) ==
    /\ collector[c].pc = "records"
    /\ \E i \in collector[c].unlisted :
         Collects(c, [collector[c] EXCEPT !.unlisted = @ \ {i},
                                          !.unread = IF records[i] = NoRecord THEN @ ELSE @ \cup {i}])
    /\ UNCHANGED <<obj, boundary, flight, history, actor, pins>>

\* Asked or granted, a pin that had not ended when the time was taken keeps the object.
ReadRecord(c) ==
    /\ collector[c].pc = "records"
    /\ \E i \in collector[c].unread :
         LET over == IF "TimeTakenAfterRecords" \in Flaws THEN {} ELSE collector[c].over
             kept == IF records[i] = NoRecord \/ records[i].pins \ over # {} THEN {i} ELSE {} IN
         /\ Collects(c, [collector[c] EXCEPT !.unread = @ \ {i},
              !.todo = IF "TimeTakenAfterRecords" \in Flaws THEN @ ELSE @ \ kept,
              !.over = IF "TimeTakenAfterRecords" \in Flaws THEN records[i].pins ELSE @])
    /\ UNCHANGED <<obj, boundary, flight, history, actor, pins>>

RecordsRead(c) ==
    LET spared == "TimeTakenAfterRecords" \in Flaws /\ collector[c].over \ ended # {} IN
    /\ collector[c].pc = "records"
    /\ collector[c].unlisted = {} /\ collector[c].unread = {}
    /\ Collects(c, IF collector[c].todo = {} \/ spared THEN NoCollection
                   ELSE [collector[c] EXCEPT !.pc = AfterRecords, !.over = {}])
    /\ UNCHANGED <<obj, boundary, flight, history, actor, pins>>

Delete(c) ==
    /\ collector[c].pc = "delete"
    /\ \E i \in collector[c].todo :
         /\ obj' = [obj EXCEPT ![i] = Empty]
         /\ Collects(c, IF collector[c].todo = {i} THEN NoCollection
                        ELSE [collector[c] EXCEPT !.todo = @ \ {i}])
    /\ UNCHANGED <<boundary, flight, history, actor, pins>>

\* At the end of a collection: a record behind the boundary in which all pins have ended is removed. It is read, and
\* deleted later without a condition. (The time is taken right before: an earlier one would only keep more.)
InspectRecord(c) ==
    /\ collector[c].pc = "start"
    /\ \E i \in Ids :
         /\ records[i] # NoRecord /\ records[i].pins \subseteq ended
         /\ i <= boundary \/ "RecordDroppedAheadOfBoundary" \in Flaws
         /\ Collects(c, [NoCollection EXCEPT !.pc = "drop", !.todo = {i}])
    /\ UNCHANGED <<obj, boundary, flight, history, actor, pins>>

DropRecord(c) ==
    /\ collector[c].pc = "drop"
    /\ \E i \in collector[c].todo : Becomes(i, NoRecord, late)
    /\ Collects(c, NoCollection)
    /\ UNCHANGED <<obj, boundary, flight, history, actor, pin, ended>>

GiveUp(c) ==
    /\ collector[c].pc # "start"
    /\ Collects(c, NoCollection)
    /\ UNCHANGED <<obj, boundary, flight, history, actor, pins>>

---------------------------------------------------------------------------
(* Pinning: swap the pin into the record, read the boundary, take the time, mark the pin as granted. A swap reads the
   record and puts it if it has not changed. No state of a record comes twice, so that is one step. *)

Knows(p, knows) == pin' = [pin EXCEPT ![p] = knows]
Done == [NoPin EXCEPT !.pc = "done"]

LoseRecord(i, new) ==
    /\ LosesPins
    /\ late' = late \cup {[id |-> i, old |-> records[i], new |-> Revised(i, new, TRUE)]}
    /\ UNCHANGED records

LandRecord == \E put \in late :
    /\ records[put.id] = put.old
    /\ Becomes(put.id, put.new, late \ {put})
    /\ UNCHANGED <<obj, boundary, flight, history, actor, collector, pin, ended>>

\* A flaw: what had not ended is learned before one's own pin is swapped in.
EarlyClock(p) ==
    /\ "ClockReadBeforePins" \in Flaws
    /\ pin[p].pc = "start"
    /\ Knows(p, [NoPin EXCEPT !.pc = "early", !.vouch = Pins \ ended])
    /\ UNCHANGED <<obj, boundary, flight, history, actor, collector, records, ended, late>>

\* A flaw: the boundary is read before one's own pin is swapped in.
EarlyLook(p) ==
    /\ "AskedAfterBoundary" \in Flaws
    /\ pin[p].pc = "start"
    /\ Knows(p, [NoPin EXCEPT !.pc = "early", !.id = boundary])
    /\ UNCHANGED <<obj, boundary, flight, history, actor, collector, records, ended, late>>

\* `known` is the record with the pin in it.
Asked(p, i, ulid, known) ==
    LET granted == (IF "AskedPinsVouch" \in Flaws THEN known.pins ELSE known.granted) \ {p}
        vouch == IF "ClockReadBeforePins" \in Flaws THEN granted \cap pin[p].vouch ELSE granted
        ahead == "AskedAfterBoundary" \in Flaws /\ pin[p].id < i IN
    IF p \in ended THEN Done
    ELSE [pc |-> IF ahead THEN "mark" ELSE "boundary", id |-> i, ulid |-> ulid, vouch |-> vouch]

\* An object that was the latest, or that was found at its id. Nothing collects the object with the last id, so that
\* one is not pinned. The end may have passed before the pin is there.
Ask(p) ==
    LET early == {"ClockReadBeforePins", "AskedAfterBoundary"} \cap Flaws # {} IN
    /\ \E i \in 1 .. Newest : \E ulid \in {history[i], obj[i].ulid, pin[p].ulid} \ {Nobody} :
         LET new == [records[i] EXCEPT !.ulid = ulid, !.pins = @ \cup {p}] IN
         /\ i < MaxId
         /\ \/ pin[p].pc = (IF early THEN "early" ELSE "start")
            \/ pin[p].pc = "again" /\ pin[p].id = i /\ pin[p].ulid = ulid
         /\ records[i].ulid \in {Nobody, ulid}
         /\ \/ p \in records[i].pins /\ Knows(p, Asked(p, i, ulid, records[i])) /\ UNCHANGED <<records, late>>
            \/ p \notin records[i].pins /\ Knows(p, Asked(p, i, ulid, new)) /\ PutRecord(i, new)
            \/ p \notin records[i].pins /\ p \notin ended /\ LoseRecord(i, new)
               /\ Knows(p, [NoPin EXCEPT !.pc = "again", !.id = i, !.ulid = ulid])
    /\ UNCHANGED <<obj, boundary, flight, history, actor, collector, ended>>

PinBoundary(p) ==
    /\ pin[p].pc = "boundary"
    /\ Knows(p, CASE boundary < pin[p].id -> [pin[p] EXCEPT !.pc = "mark", !.vouch = {}]
                  [] boundary >= pin[p].id /\ pin[p].vouch = {} -> [pin[p] EXCEPT !.pc = "refused"]
                  [] OTHER -> [pin[p] EXCEPT !.pc = "time"])
    /\ UNCHANGED <<obj, boundary, flight, history, actor, collector, records, ended, late>>

\* Behind the boundary only a granted pin, not ended after ours was there, proves that the object is still held.
PinTime(p) ==
    /\ pin[p].pc = "time"
    /\ Knows(p, [pin[p] EXCEPT !.vouch = {},
         !.pc = IF pin[p].vouch \ ended # {} \/ "ClockReadBeforePins" \in Flaws THEN "mark" ELSE "refused"])
    /\ UNCHANGED <<obj, boundary, flight, history, actor, collector, records, ended, late>>

\* The mark moves no end: a pin whose end has passed stays ended, and its client finds it lost.
PinMark(p) ==
    LET i == pin[p].id
        new == [records[i] EXCEPT !.granted = @ \cup {p}] IN
    /\ pin[p].pc = "mark"
    /\ CASE p \notin records[i].pins -> Knows(p, Done) /\ UNCHANGED <<records, late>>
         [] p \in records[i].granted -> Knows(p, [pin[p] EXCEPT !.pc = "held"]) /\ UNCHANGED <<records, late>>
         [] OTHER -> \/ PutRecord(i, new) /\ Knows(p, [pin[p] EXCEPT !.pc = "held"])
                     \/ LoseRecord(i, new) /\ UNCHANGED pin
    /\ ended' = ended \ {p}      \* only with the flaw GrantRevives does a pin that has ended get here
    /\ collector' = [c \in Collectors |-> [collector[c] EXCEPT !.over = @ \ {p}]]
    /\ UNCHANGED <<obj, boundary, flight, history, actor>>

\* A client may let go at any time. One that renews does so once its next pin is granted. (A put whose answer is lost
\* is no different from a client that lets go later.)
Release(p) ==
    LET i == pin[p].id
        new == [records[i] EXCEPT !.pins = @ \ {p}, !.granted = @ \ {p}] IN
    /\ pin[p].pc \in {"held", "refused"}
    /\ Knows(p, Done)
    /\ IF p \in records[i].pins THEN PutRecord(i, new) ELSE UNCHANGED <<records, late>>
    /\ UNCHANGED <<obj, boundary, flight, history, actor, collector, ended>>

\* What its client does after that changes nothing, so it stops.
Expire(p) ==
    /\ p \notin ended
    /\ pin[p].pc # "done" \/ LosesPins \/ \E q \in Pins : p \in pin[q].vouch
    /\ ended' = ended \cup {p}
    /\ IF pin[p].pc \in {"start", "early"} \/ (pin[p].pc # "held" /\ "GrantRevives" \in Flaws)
       THEN UNCHANGED pin ELSE Knows(p, Done)
    /\ UNCHANGED <<obj, boundary, flight, history, actor, collector, records, late>>

---------------------------------------------------------------------------
Next ==
    \/ \E a \in Actors :
         \/ ReadByList(a) \/ ReadFirstPage(a) \/ ReadSecondPage(a) \/ Fetch(a)
         \/ ReadByHint(a) \/ Probe(a) \/ Check(a)
         \/ EarlyBoundary(a) \/ EarlyProbeBoundary(a)
    \/ \E w \in Writes :
         \/ PutAnswered(w) \/ PutLost(w) \/ PutRepeatedByClient(w)
         \/ Look(w) \/ AfterCreate(w) \/ AfterForeign(w) \/ Successor(w)
    \/ Land
    \/ \E c \in Collectors :
         \/ List(c) \/ ListFirstPage(c) \/ ListSecondPage(c)
         \/ ReadBoundary(c) \/ Swap(c) \/ ListRecord(c) \/ ReadRecord(c) \/ RecordsRead(c) \/ Delete(c)
         \/ InspectRecord(c) \/ DropRecord(c) \/ GiveUp(c)
    \/ \E p \in Pins :
         \/ EarlyClock(p) \/ EarlyLook(p)
         \/ Ask(p) \/ PinBoundary(p) \/ PinTime(p) \/ PinMark(p) \/ Release(p) \/ Expire(p)
    \/ LandRecord

Spec == Init /\ [][Next]_vars

Symmetry == Permutations(Writes) \cup Permutations(Collectors) \cup Permutations(Pins)

\* Where a search for a violation is to be short.
Brief == ended = {} /\ Cardinality(late) <= 2

---------------------------------------------------------------------------
(* What must hold. *)

Committed(ulid) == \E i \in DOMAIN history : history[i] = ulid

\* No write is in the history twice.
NoDuplicateCommit == \A i, j \in DOMAIN history : history[i] = history[j] => i = j

\* What lives above the boundary is the tail of the history, without a gap, each object naming the one before it.
ContiguousHistory == \A i \in boundary + 1 .. MaxId :
    /\ Exists(i) <=> i <= Newest
    /\ i <= Newest => obj[i] = [ulid |-> history[i], prev |-> IF i = 1 THEN Nobody ELSE history[i - 1]]

\* A committed object is gone, or replaced by a zombie, only behind the boundary.
DeletesOnlyBehindBoundary == \A i \in 1 .. Newest : obj[i].ulid # history[i] => i <= boundary

\* The newest committed object is always there.
LatestNeverDeleted == Newest > 0 => obj[Newest].ulid = history[Newest]

\* Whoever was told "success" committed.
SuccessIsInHistory == \A w \in Writes : actor[w].pc = "success" => Committed(w)

\* Whoever was told "conflict" did not commit, and never will (S2, S3).
ConflictNotInHistory == \A w \in Writes : actor[w].pc = "conflict" => ~Committed(w)

\* A latest object that was returned was the head of the history at some moment of the read (S1).
ReadLatestNeverStale == \A a \in Actors : actor[a].pc = "latest" =>
    /\ actor[a].at \in actor[a].since .. Newest
    /\ actor[a].at > 0 => history[actor[a].at] = actor[a].saw

\* A granted pin that has not expired holds a committed object, which is there (S4).
GrantedPinProtected == \A p \in Pins : pin[p].pc = "held" =>
    obj[pin[p].id].ulid = pin[p].ulid /\ history[pin[p].id] = pin[p].ulid

BoundaryMonotonic == [][boundary' >= boundary]_vars

=============================================================================
