---------------------------- MODULE Promote ----------------------------
(* The protocol of headwater.sync.promote: a replica branch follows `main`, all tables of a commit at once. See README.md.

   A run is planned on the head of the replica: to which commit of `main`, and which tables have changed since the one
   that the replica shows. When the region's own catalog shows that commit, the replica moves. Nessie compares keys, not
   heads: that a commit follows on the very head that it was planned on hangs on one key, the fence.

   Each action is one request, or a decision on its answer. Between any two a promoter may stall, for ever or until long
   after its lease. So there is no lease here: every promoter works at any time, on a run of its own or on one that
   another has begun and may still be at. What holds, holds without it. *)

EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS Promoters,    \* processes that sync the region
          Commits,      \* how many commits `main` gets
          Runs,         \* how many runs are begun
          Subsets,      \* whether runs of some tables are among them
          Faults,       \* what the world may do
          Flaws         \* which rules are left out

FlawNames == {"EqualFence", "WhateverTheHeadIs", "TriedAgain", "NoLookAtTheReplica", "RegionIsNotAsked", "RefIsEnough",
              "SubsetMovesTheOrigin", "PartIsTakenForWhole", "FullIsDecidedTwice", "ConflictIsBelieved",
              "OwnCommitIsNotLookedFor", "SentTwice"}
ASSUME Flaws \subseteq FlawNames
ASSUME Faults \subseteq {"answers are lost", "conflicts with itself", "rows arrive late", "main moves back",
                         "history is cut", "tables are put back"}

Tables == {"t", "u"}
Nothing == 0            \* no commit of main, and the version of a table that is not there

VARIABLES
    line,      \* the commits of main, in the order in which they were made: the parent, and by table the version
    main,      \* the commit that main is at
    cut,       \* commits whose contents nobody can compare any more
    region,    \* what the region's catalog has: where its main is, and the commits whose contents have arrived
    seen,      \* commits that the region has shown, with their contents, at some time
    replica,   \* the commits of the replica branch
    runs,      \* the runs, in the order in which they were begun; what a run rests on does not change
    said,      \* run -> what was noted of it
    belied,    \* runs that were said to have promoted nothing while their commit was there
    flight,    \* commits that were sent by who died or gave up, and may still land
    act        \* promoter -> where it is, and with which run

vars == <<line, main, cut, region, seen, replica, runs, said, belied, flight, act>>

Idle == [pc |-> "idle", run |-> 0, base |-> 0, full |-> FALSE]
First == [origin |-> 1, shows |-> [t \in Tables |-> 1], ahead |-> {}, run |-> 0, forward |-> TRUE, visible |-> TRUE]

Init ==
    /\ line = <<[parent |-> Nothing, holds |-> [t \in Tables |-> 1]]>>
    /\ main = 1 /\ cut = {} /\ region = [main |-> 1, rows |-> {1}] /\ seen = {1}
    /\ replica = <<First>> /\ runs = <<>> /\ said = <<>> /\ belied = {} /\ flight = {}
    /\ act = [p \in Promoters |-> Idle]

---------------------------------------------------------------------------
(* main, and what the region sees of it. *)

RECURSIVE Before(_)
Before(c) == IF c = Nothing THEN {} ELSE {c} \cup Before(line[c].parent)

\* Somebody else writes one table: something new, or what it once held.
Write == \E t \in Tables : \E version \in {Len(line) + 1} \cup (IF "tables are put back" \in Faults THEN {1} ELSE {}) :
    /\ Len(line) < Commits
    /\ line[main].holds[t] # version
    /\ line' = Append(line, [parent |-> main, holds |-> [line[main].holds EXCEPT ![t] = version]])
    /\ main' = Len(line) + 1
    /\ UNCHANGED <<cut, region, seen, replica, runs, said, belied, flight, act>>

MoveBack ==
    /\ "main moves back" \in Faults
    /\ line[main].parent # Nothing /\ Len(line) < Commits    \* it goes on from there
    /\ main' = line[main].parent
    /\ UNCHANGED <<line, cut, region, seen, replica, runs, said, belied, flight, act>>

Cut ==
    /\ "history is cut" \in Faults
    /\ ~((Before(main) \ {main}) \subseteq cut)
    /\ cut' = cut \cup (Before(main) \ {main})
    /\ UNCHANGED <<line, main, region, seen, replica, runs, said, belied, flight, act>>

Shows(r) == {c \in Before(r.main) : c \in r.rows}
Arrives(r) == region' = r /\ seen' = seen \cup Shows(r)

\* Refs and contents come in order, unless rows arrive late.
Replicate ==
    /\ \/ /\ region.main # main
          /\ Arrives([main |-> main, rows |-> IF "rows arrive late" \in Faults THEN region.rows
                                              ELSE region.rows \cup Before(main)])
       \/ \E c \in Before(main) \ region.rows : Arrives([region EXCEPT !.rows = @ \cup {c}])
    /\ UNCHANGED <<line, main, cut, replica, runs, said, belied, flight, act>>

---------------------------------------------------------------------------
(* The replica branch, as Nessie keeps it. *)

Newest == replica[Len(replica)]
IsIn(run) == \E i \in DOMAIN replica : replica[i].run = run
Goes(p, pc) == act' = [act EXCEPT ![p].pc = pc]
Ends(p) == act' = [act EXCEPT ![p] = Idle]

\* What a commit of the run compares between the head that it was planned on and the head that is there.
Fits(run, base) ==
    CASE "WhateverTheHeadIs" \in Flaws -> TRUE
      [] "EqualFence" \in Flaws -> \A t \in runs[run].keys : replica[base].shows[t] = Newest.shows[t]
      [] OTHER -> base = Len(replica)

Lands(run, base, full) ==
    LET spec == runs[run]
        before == Newest
        shown == [t \in Tables |-> IF t \in spec.keys THEN line[spec.target].holds[t]
                                   ELSE IF full THEN Nothing ELSE before.shows[t]]
        origin == IF spec.part /\ "SubsetMovesTheOrigin" \notin Flaws THEN replica[base].origin ELSE spec.target
        ahead == IF spec.part THEN replica[base].ahead \cup spec.keys ELSE {}
        isBack == origin # before.origin /\ before.origin \in Before(main) /\ origin \in Before(before.origin) IN
    replica' = Append(replica, [origin |-> origin, shows |-> shown, ahead |-> ahead, run |-> run,
                                forward |-> ~isBack, visible |-> spec.target \in seen])

\* A commit whose sender is gone.
Land == \E sent \in flight :
    /\ flight' = flight \ {sent}
    /\ IF Fits(sent.run, sent.base) THEN Lands(sent.run, sent.base, sent.full) ELSE UNCHANGED replica
    /\ UNCHANGED <<line, main, cut, region, seen, runs, said, belied, act>>

---------------------------------------------------------------------------
(* A promoter. *)

\* To any commit of main: who ships data begins at an old one, and whoever has stalled has an old one in mind.
Plan(p) == \E target \in Before(main) : \E part \in (IF Subsets THEN BOOLEAN ELSE {FALSE}) :
    LET isKnown == Newest.origin \notin cut
        ahead == IF "PartIsTakenForWhole" \in Flaws THEN {} ELSE Newest.ahead
        changed == {t \in Tables : isKnown /\ t \notin ahead => line[Newest.origin].holds[t] # line[target].holds[t]} IN
    /\ act[p].pc = "idle" /\ Len(runs) < Runs
    /\ part => target = main
    /\ runs' = Append(runs, [target |-> target, base |-> Len(replica), shown |-> IF isKnown THEN Newest.origin ELSE Nothing,
                             part |-> part, keys |-> IF part THEN changed \cap {"t"} ELSE changed])
    /\ said' = Append(said, "open")
    /\ act' = [act EXCEPT ![p] = [Idle EXCEPT !.pc = "begin", !.run = Len(runs) + 1, !.base = Len(replica)]]
    /\ UNCHANGED <<line, main, cut, region, seen, replica, belied, flight>>

\* A run that somebody has begun, and perhaps died over.
TakeUp(p) == \E run \in DOMAIN runs :
    /\ act[p].pc = "idle" /\ said[run] = "open"
    /\ act' = [act EXCEPT ![p] = [Idle EXCEPT !.pc = "begin", !.run = run, !.base = runs[run].base]]
    /\ UNCHANGED <<line, main, cut, region, seen, replica, runs, said, belied, flight>>

\* It is noted what became of the run.
Says(p, what) ==
    /\ said' = [said EXCEPT ![act[p].run] = what]
    /\ belied' = IF what = "nothing" /\ IsIn(act[p].run) THEN belied \cup {act[p].run} ELSE belied
    /\ Ends(p)

\* Is it there already? Does what is localised still say all that changed?
Begin(p) ==
    LET run == runs[act[p].run]
        isFull == ~run.part /\ (run.shown = Nothing \/ run.shown \in cut) IN
    /\ act[p].pc = "begin"
    /\ CASE IsIn(act[p].run) /\ "OwnCommitIsNotLookedFor" \notin Flaws -> Says(p, "promoted")
         [] isFull /\ run.shown # Nothing /\ "FullIsDecidedTwice" \notin Flaws -> Says(p, "nothing")
         [] OTHER -> act' = [act EXCEPT ![p].pc = "look", ![p].full = isFull] /\ UNCHANGED <<said, belied>>
    /\ UNCHANGED <<line, main, cut, region, seen, replica, runs, flight>>

\* Where the replica stands to the target: who finds it there, or further, stops. Then the gate: the region shows the
\* target, and its contents load; until then it is looked again.
Look(p) ==
    LET target == runs[act[p].run].target
        shown == Newest.origin
        isPast == shown \in Before(main) /\ target \in Before(shown) /\ "NoLookAtTheReplica" \notin Flaws
        isThere == isPast /\ ~(target = shown /\ Newest.ahead # {})
        isOpen == \/ "RegionIsNotAsked" \in Flaws
                  \/ target \in Before(region.main) /\ (target \in region.rows \/ "RefIsEnough" \in Flaws) IN
    /\ act[p].pc = "look"
    /\ IF isThere \/ target \notin Before(main)
       THEN IF IsIn(act[p].run) /\ "OwnCommitIsNotLookedFor" \notin Flaws THEN Says(p, "promoted") ELSE Says(p, "nothing")
       ELSE isOpen /\ Goes(p, "commit") /\ UNCHANGED <<said, belied>>
    /\ UNCHANGED <<line, main, cut, region, seen, replica, runs, flight>>

Commit(p) ==
    LET run == act[p].run
        sent == [run |-> run, base |-> act[p].base, full |-> act[p].full]
        fits == Fits(run, act[p].base) IN
    /\ act[p].pc = "commit"
    /\ \/ /\ fits /\ Lands(run, act[p].base, act[p].full) /\ Says(p, "promoted") /\ UNCHANGED flight
       \/ /\ ~fits /\ Goes(p, "conflict") /\ UNCHANGED <<replica, said, belied, flight>>
       \* a server that does not know whether it committed tries again, and finds its own commit in its way
       \/ /\ fits /\ "conflicts with itself" \in Faults
          /\ Lands(run, act[p].base, act[p].full) /\ Goes(p, "conflict") /\ UNCHANGED <<said, belied, flight>>
       \* nobody answers, or it dies: the run stays open
       \/ /\ "answers are lost" \in Faults
          /\ flight' = flight \cup {sent}
          /\ IF "SentTwice" \in Flaws
             THEN act' = [act EXCEPT ![p].base = Len(replica)] /\ UNCHANGED <<replica, said, belied>>
             ELSE Ends(p) /\ UNCHANGED <<replica, said, belied>>
    /\ UNCHANGED <<line, main, cut, region, seen, runs>>

\* Nothing is tried again with the old plan. Its own commit may be what was in its way.
Conflict(p) ==
    /\ act[p].pc = "conflict"
    /\ CASE IsIn(act[p].run) /\ "ConflictIsBelieved" \notin Flaws -> Says(p, "promoted")
         [] "TriedAgain" \in Flaws ->
              act' = [act EXCEPT ![p].pc = "commit", ![p].base = Len(replica)] /\ UNCHANGED <<said, belied>>
         [] OTHER -> Says(p, "nothing")
    /\ UNCHANGED <<line, main, cut, region, seen, replica, runs, flight>>

Die(p) ==
    /\ act[p].pc # "idle"
    /\ Ends(p)
    /\ UNCHANGED <<line, main, cut, region, seen, replica, runs, said, belied, flight>>

---------------------------------------------------------------------------
Next ==
    \/ Write \/ MoveBack \/ Cut \/ Replicate \/ Land
    \/ \E p \in Promoters : Plan(p) \/ TakeUp(p) \/ Begin(p) \/ Look(p) \/ Commit(p) \/ Conflict(p) \/ Die(p)

Spec == Init /\ [][Next]_vars

Symmetry == Permutations(Promoters)

---------------------------------------------------------------------------
(* What must hold. *)

\* A commit of the replica is one commit of main, whole (R1), but for the tables of which it says otherwise.
Whole == \A i \in DOMAIN replica : \A t \in Tables \ replica[i].ahead :
    replica[i].shows[t] = line[replica[i].origin].holds[t]

\* The replica goes along main, never back, unless what it shows is no longer part of main (R2).
OnlyForward == \A i \in DOMAIN replica : replica[i].forward

\* Before the replica moves to a commit, the region has shown that commit, and its contents (R4).
RegionHasSeenIt == \A i \in DOMAIN replica : replica[i].visible

\* A run of some tables leaves the origin where it was (R7).
PartKeepsOrigin == \A i \in DOMAIN replica : replica[i].ahead # {} => replica[i].origin = replica[i - 1].origin

\* No run promotes twice.
OnceEach == \A i, j \in DOMAIN replica : replica[i].run = replica[j].run => i = j

\* Whoever said that nothing was promoted was right at that moment.
SaidAsItIs == belied = {}

=============================================================================
