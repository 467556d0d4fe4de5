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
    Readers,     \* processes that only ask for the latest object
    Collectors,
    Pinners,     \* clients that pin: numbers, because the names of their pins have an order
    Nobody,      \* what the first object names as its predecessor
    MaxId,       \* ids beyond this one are not written
    Faults,      \* what the world may do to us
    Flaws        \* rules that are left out, to see that TLC misses them

FaultNames == {
    "answers are lost",      \* a put's effect happens now, later, or never, and the writer is not told
    "hints are stale",       \* a read of the latest object may start from any object
    "client repeats puts",   \* the HTTP client repeats a put on its own after a lost answer
    "lists have pages",      \* a list of objects is two requests, and things happen in between
    "pins pass by"}          \* a list of pins sees each of them at a moment of its own, in the order of names

FlawNames == {
    "NoCheckAfterCreate", "StaleIsConflict", "ForeignBehindBoundaryIsConflict", "LostTakesNewId",
    "TrustExists", "ConflictTakesNextId", "BoundaryReadBeforeObject", "BoundaryReadBeforeProbe", "BlindAdvance",
    "DeleteWithoutAdvance", "LatestIsOldToo", "PinsReadBeforeAdvance", "PinsJudgedLater",
    "AskedPinsVouch", "AnyPinVouches", "ClockReadBeforePins", "GrantRevives"}

ASSUME Faults \subseteq FaultNames /\ Flaws \subseteq FlawNames /\ MaxId \in Nat /\ Pinners \subseteq Nat

VARIABLES
    obj,         \* what the store holds: id -> object, or Empty
    boundary,    \* inclusive; 0 while its file does not exist
    flight,      \* puts whose answer was lost: each may land at any time, as often as it likes
    history,     \* ghost: the ULIDs that were committed, in order
    actor,       \* writes and readers
    collector,
    pin

vars == <<obj, boundary, flight, history, actor, collector, pin>>

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
\* `todo`: ids to be deleted; `seen`: the boundary that was read, or where a page ends; `passed`: pins already listed.
NoCollection == [pc |-> "start", todo |-> {}, seen |-> 0, passed |-> {}]
\* `alive`: what a flawed client believes to be granted, by a clock that it read too early.
NoPin == [pc |-> "start", state |-> "none", id |-> 0, ulid |-> Nobody, alive |-> {}]

Init ==
    /\ obj = [i \in 1 .. MaxId + 1 |-> Empty]
    /\ boundary = 0
    /\ flight = {}
    /\ history = <<>>
    /\ actor = [a \in Actors |-> Resting]
    /\ collector = [c \in Collectors |-> NoCollection]
    /\ pin = [p \in Pinners |-> NoPin]

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
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pin>>

Opens(a) == actor[a].pc = (IF "BoundaryReadBeforeObject" \in Flaws THEN "open" ELSE "start")
Since(a) == IF actor[a].pc = "open" THEN actor[a].since ELSE Newest

ReadByList(a) ==
    /\ Opens(a)
    /\ Moves(a, [actor[a] EXCEPT !.pc = IF Live = {} THEN "check" ELSE "fetch", !.at = Max(Live), !.since = Since(a)])
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pin>>

ReadFirstPage(a) ==
    /\ "lists have pages" \in Faults
    /\ Opens(a)
    /\ \E end \in 1 .. MaxId - 1 :
         Moves(a, [actor[a] EXCEPT !.pc = "page", !.at = Max(Live \cap (1 .. end)), !.since = Since(a), !.edge = end])
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pin>>

ReadSecondPage(a) ==
    LET latest == Max({actor[a].at} \cup {i \in Live : i > actor[a].edge}) IN
    /\ actor[a].pc = "page"
    /\ Moves(a, [actor[a] EXCEPT !.pc = IF latest = 0 THEN "check" ELSE "fetch", !.at = latest, !.edge = 0])
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pin>>

Again(a) == Moves(a, [Resting EXCEPT !.lost = actor[a].lost])

Fetch(a) ==
    /\ actor[a].pc = "fetch"
    /\ IF Exists(actor[a].at)
       THEN Moves(a, [actor[a] EXCEPT !.pc = "check", !.saw = obj[actor[a].at].ulid])
       ELSE Again(a)
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pin>>

ReadByHint(a) ==
    /\ "hints are stale" \in Faults
    /\ Opens(a)
    /\ \E i \in Live :
         Moves(a, [actor[a] EXCEPT !.pc = "probe", !.at = i, !.saw = obj[i].ulid, !.since = Since(a)])
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pin>>

\* A flaw: the boundary is read once, after the hinted object but before its successors are asked for.
EarlyProbeBoundary(a) ==
    /\ "BoundaryReadBeforeProbe" \in Flaws
    /\ actor[a].pc = "probe"
    /\ Moves(a, [actor[a] EXCEPT !.pc = "probe further", !.edge = boundary])
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pin>>

Probe(a) ==
    LET next == actor[a].at + 1 IN
    /\ actor[a].pc = (IF "BoundaryReadBeforeProbe" \in Flaws THEN "probe further" ELSE "probe")
    /\ Moves(a, IF Exists(next) THEN [actor[a] EXCEPT !.at = next, !.saw = obj[next].ulid]
                                ELSE [actor[a] EXCEPT !.pc = "check"])
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pin>>

\* The object counts only if the boundary, read after it, is below it; otherwise everything starts again.
Check(a) ==
    LET early == {"BoundaryReadBeforeObject", "BoundaryReadBeforeProbe"} \cap Flaws # {}
        edge == IF early THEN actor[a].edge ELSE boundary IN
    /\ actor[a].pc = "check"
    /\ IF edge < actor[a].at \/ (actor[a].at = 0 /\ edge = 0)
       THEN Moves(a, [actor[a] EXCEPT !.pc = "latest", !.edge = 0])
       ELSE Again(a)
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pin>>

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
    /\ UNCHANGED <<boundary, flight, collector, pin>>

Sent(w) == flight' = flight \cup {[id |-> Target(w), ulid |-> w, prev |-> actor[w].saw]}

PutLost(w) ==
    /\ "answers are lost" \in Faults
    /\ BeforePut(w)
    /\ Sent(w)
    /\ Moves(w, [actor[w] EXCEPT !.pc = "look", !.lost = TRUE, !.since = 0])
    /\ UNCHANGED <<obj, boundary, history, collector, pin>>

PutRepeatedByClient(w) ==   \* the writer does not learn that there was more than one
    /\ "client repeats puts" \in Faults
    /\ BeforePut(w)
    /\ Sent(w)
    /\ Goes(w, "again")
    /\ UNCHANGED <<obj, boundary, history, collector, pin>>

Land == \E put \in flight :
    /\ ~Exists(put.id)
    /\ Create(put.id, put.ulid, put.prev)
    /\ UNCHANGED <<boundary, flight, actor, collector, pin>>

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
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pin>>

\* Our object was there: above the boundary that is success, behind it the successor must tell.
AfterCreate(w) ==
    /\ actor[w].pc = "created"
    /\ CASE Target(w) > boundary \/ "NoCheckAfterCreate" \in Flaws -> Moves(w, Ended("success"))
         [] Target(w) <= boundary /\ "StaleIsConflict" \in Flaws -> Moves(w, Ended("conflict"))
         [] OTHER -> Goes(w, "successor")
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pin>>

\* Somebody else's object was there: above the boundary it is the commit, behind it it may be a zombie.
AfterForeign(w) ==
    /\ actor[w].pc = "foreign"
    /\ IF Target(w) > boundary \/ "ForeignBehindBoundaryIsConflict" \in Flaws
       THEN Moves(w, Ended("conflict"))
       ELSE Goes(w, "successor")
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pin>>

\* Whoever wrote the successor had read its predecessor as the latest, so that one is in the history.
Successor(w) ==
    LET next == obj[Target(w) + 1] IN
    /\ actor[w].pc = "successor"
    /\ Moves(w, Ended(IF next = Empty THEN "unknown" ELSE IF next.prev = w THEN "success" ELSE "conflict"))
    /\ UNCHANGED <<obj, boundary, flight, history, collector, pin>>

---------------------------------------------------------------------------
(* Collecting. Any set of objects without the latest may be old enough; giving up is starting again. *)

Collects(c, record) == collector' = [collector EXCEPT ![c] = record]
Holding == {p \in Pinners : pin[p].state \in {"asked", "granted"}}    \* asked or granted: both keep the object
Held(ps) == {pin[p].id : p \in ps \cap Holding}

Choose(c, listed) == \E old \in SUBSET (IF "LatestIsOldToo" \in Flaws THEN listed ELSE listed \ {Max(listed)}) :
    /\ old # {}
    /\ Collects(c, [NoCollection EXCEPT !.todo = old,
         !.pc = CASE "PinsReadBeforeAdvance" \in Flaws -> "pins"
                  [] "DeleteWithoutAdvance" \in Flaws -> "delete"
                  [] OTHER -> "boundary"])

List(c) ==
    /\ collector[c].pc = "start"
    /\ Choose(c, Live)
    /\ UNCHANGED <<obj, boundary, flight, history, actor, pin>>

ListFirstPage(c) ==
    /\ "lists have pages" \in Faults
    /\ collector[c].pc = "start"
    /\ \E end \in 1 .. MaxId - 1 :
         Collects(c, [NoCollection EXCEPT !.pc = "page", !.seen = end, !.todo = Live \cap (1 .. end)])
    /\ UNCHANGED <<obj, boundary, flight, history, actor, pin>>

ListSecondPage(c) ==
    /\ collector[c].pc = "page"
    /\ Choose(c, collector[c].todo \cup {i \in Live : i > collector[c].seen})
    /\ UNCHANGED <<obj, boundary, flight, history, actor, pin>>

AfterAdvance == IF "PinsReadBeforeAdvance" \in Flaws THEN "delete" ELSE "pins"
AfterPins == IF "PinsReadBeforeAdvance" \in Flaws THEN "boundary" ELSE "delete"

ReadBoundary(c) ==
    /\ collector[c].pc = "boundary"
    /\ Collects(c, IF boundary >= Max(collector[c].todo)
                   THEN [collector[c] EXCEPT !.pc = AfterAdvance]
                   ELSE [collector[c] EXCEPT !.pc = "swap", !.seen = boundary])
    /\ UNCHANGED <<obj, boundary, flight, history, actor, pin>>

Swap(c) ==
    /\ collector[c].pc = "swap"
    /\ IF boundary = collector[c].seen \/ "BlindAdvance" \in Flaws
       THEN /\ boundary' = Max(collector[c].todo)
            /\ Collects(c, [collector[c] EXCEPT !.pc = AfterAdvance, !.seen = 0])
       ELSE /\ Collects(c, [collector[c] EXCEPT !.pc = "boundary", !.seen = 0])
            /\ UNCHANGED boundary
    /\ UNCHANGED <<obj, flight, history, actor, pin>>

Keeps(c, rest) ==
    Collects(c, IF rest = {} THEN NoCollection
                ELSE [collector[c] EXCEPT !.pc = AfterPins, !.todo = rest, !.passed = {}])

ReadPins(c) ==
    /\ collector[c].pc = "pins"
    /\ {"pins pass by", "PinsJudgedLater"} \cap (Faults \cup Flaws) = {}
    /\ Keeps(c, collector[c].todo \ Held(Pinners))
    /\ UNCHANGED <<obj, boundary, flight, history, actor, pin>>

PinPasses(c) ==
    LET left == Pinners \ collector[c].passed IN
    /\ "pins pass by" \in Faults
    /\ collector[c].pc = "pins"
    /\ IF left = {} THEN Keeps(c, collector[c].todo)
       ELSE Collects(c, [collector[c] EXCEPT !.passed = @ \cup {Min(left)}, !.todo = @ \ Held({Min(left)})])
    /\ UNCHANGED <<obj, boundary, flight, history, actor, pin>>

\* A flaw: the names of the pins are listed, and what has expired or is gone when its turn comes does not count.
ListPinNames(c) ==
    /\ "PinsJudgedLater" \in Flaws
    /\ collector[c].pc = "pins"
    /\ Collects(c, [collector[c] EXCEPT !.pc = "judge", !.passed = Holding])
    /\ UNCHANGED <<obj, boundary, flight, history, actor, pin>>

JudgePins(c) ==
    /\ collector[c].pc = "judge"
    /\ Keeps(c, collector[c].todo \ Held(collector[c].passed))
    /\ UNCHANGED <<obj, boundary, flight, history, actor, pin>>

Delete(c) ==
    /\ collector[c].pc = "delete"
    /\ \E i \in collector[c].todo :
         /\ obj' = [obj EXCEPT ![i] = Empty]
         /\ Collects(c, IF collector[c].todo = {i} THEN NoCollection
                        ELSE [collector[c] EXCEPT !.todo = @ \ {i}])
    /\ UNCHANGED <<boundary, flight, history, actor, pin>>

GiveUp(c) ==
    /\ collector[c].pc # "start"
    /\ Collects(c, NoCollection)
    /\ UNCHANGED <<obj, boundary, flight, history, actor, pin>>

---------------------------------------------------------------------------
(* Pinning: ask, then look at the boundary, then mark the pin granted. *)

Pins(p, record) == pin' = [pin EXCEPT ![p] = record]
\* A pin that is given back, or refused, or expired after its client has finished, leaves nothing behind.
Refused(p) == Pins(p, NoPin)
Granted == {p \in Pinners : pin[p].state = "granted"}

\* A flaw: the clock that tells which pins have expired is read before one's own pin is written.
EarlyClock(p) ==
    /\ "ClockReadBeforePins" \in Flaws
    /\ pin[p].pc = "start"
    /\ Pins(p, [NoPin EXCEPT !.pc = "ask",
                             !.alive = {[id |-> pin[q].id, ulid |-> pin[q].ulid] : q \in Granted \ {p}}])
    /\ UNCHANGED <<obj, boundary, flight, history, actor, collector>>

Ask(p) ==
    /\ pin[p].pc = (IF "ClockReadBeforePins" \in Flaws THEN "ask" ELSE "start")
    /\ \E i \in 1 .. Newest : \E ulid \in {history[i], obj[i].ulid} \ {Nobody} :
         Pins(p, [pin[p] EXCEPT !.pc = "boundary", !.state = "asked", !.id = i, !.ulid = ulid])
    /\ UNCHANGED <<obj, boundary, flight, history, actor, collector>>

PinBoundary(p) ==
    /\ pin[p].pc = "boundary"
    /\ Pins(p, [pin[p] EXCEPT !.pc = IF boundary < pin[p].id THEN "object" ELSE "vouch"])
    /\ UNCHANGED <<obj, boundary, flight, history, actor, collector>>

PinObject(p) ==
    /\ pin[p].pc = "object"
    /\ IF obj[pin[p].id].ulid = pin[p].ulid THEN Pins(p, [pin[p] EXCEPT !.pc = "mark"]) ELSE Refused(p)
    /\ UNCHANGED <<obj, boundary, flight, history, actor, collector>>

\* Behind the boundary only a pin that is granted already proves that the object is still held. Its name must
\* sort before ours: a list that comes too early for our pin has then seen the one that vouched, or its voucher.
PinVouch(p) ==
    LET known == IF "AskedPinsVouch" \in Flaws THEN Holding ELSE Granted
        vouching == {q \in known \ {p} : q < p \/ "AnyPinVouches" \in Flaws}
        same(q) == pin[q].id = pin[p].id /\ pin[q].ulid = pin[p].ulid IN
    /\ pin[p].pc = "vouch"
    /\ IF (\E q \in vouching : same(q)) \/ [id |-> pin[p].id, ulid |-> pin[p].ulid] \in pin[p].alive
       THEN Pins(p, [pin[p] EXCEPT !.pc = "mark"])
       ELSE Refused(p)
    /\ UNCHANGED <<obj, boundary, flight, history, actor, collector>>

\* The mark changes the state alone: a pin that expired meanwhile stays expired.
PinMark(p) ==
    /\ pin[p].pc = "mark"
    /\ IF pin[p].state = "asked" \/ "GrantRevives" \in Flaws
       THEN Pins(p, [pin[p] EXCEPT !.pc = "held", !.state = "granted"])
       ELSE Refused(p)
    /\ UNCHANGED <<obj, boundary, flight, history, actor, collector>>

Expire(p) ==
    /\ pin[p].state \in {"asked", "granted"}
    /\ IF pin[p].pc = "held" THEN Pins(p, NoPin) ELSE Pins(p, [pin[p] EXCEPT !.state = "expired"])
    /\ UNCHANGED <<obj, boundary, flight, history, actor, collector>>

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
         \/ ReadBoundary(c) \/ Swap(c) \/ ReadPins(c) \/ PinPasses(c) \/ Delete(c) \/ GiveUp(c)
         \/ ListPinNames(c) \/ JudgePins(c)
    \/ \E p \in Pinners :
         \/ EarlyClock(p)
         \/ Ask(p) \/ PinBoundary(p) \/ PinObject(p) \/ PinVouch(p) \/ PinMark(p) \/ Expire(p)

Spec == Init /\ [][Next]_vars

Symmetry == Permutations(Writes) \cup Permutations(Collectors)

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
GrantedPinProtected == \A p \in Pinners : pin[p].state = "granted" =>
    obj[pin[p].id].ulid = pin[p].ulid /\ history[pin[p].id] = pin[p].ulid

BoundaryMonotonic == [][boundary' >= boundary]_vars

=============================================================================
