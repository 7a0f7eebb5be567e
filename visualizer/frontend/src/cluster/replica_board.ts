/**
 * What the panels of one replica use of their board: the model and frame of its run at the cursor, and actions that the
 * cluster's board carries out. Ids are the run's own.
 */

import type { PanelBoard } from "../board/board.ts";
import type { ClusterBoard } from "./cluster_board.ts";
import type { Replica, Run } from "./replica.ts";

export class ReplicaBoard implements PanelBoard {
  unit = 1;
  narrow = true; // its panels stand side by side
  cluster: ClusterBoard;
  replica: Replica;

  constructor(cluster: ClusterBoard, replica: Replica) {
    this.cluster = cluster;
    this.replica = replica;
  }

  /** The run at the cursor. */
  get run() {
    return this.replica.runAt(this.cluster.state.at);
  }

  get model() {
    return this.run?.model ?? this.replica.model;
  }

  /** Whether the replica is there at the cursor. */
  get isThere() {
    return this.replica.stayAt(this.cluster.state.at) !== null;
  }

  get theme() {
    return this.cluster.theme;
  }

  get tooltip() {
    return this.cluster.tooltip;
  }

  get signal() {
    return this.cluster.signal;
  }

  get step() {
    return this.run?.stepAt(this.cluster.state.at) ?? 1;
  }

  get frame() {
    return this.model.frame(this.step);
  }

  get selected() {
    return this.selectedIn(this.run);
  }

  /** The selected request's id in a run, or null. */
  selectedIn(run: Run | undefined): number | null {
    const place = this.cluster.selected?.places.findLast((one) => one.run.parts === run?.parts);
    return place?.its ?? null;
  }

  /** Whether its memory is drawn: what a replica that is not there had in it is lost. */
  get isShown() {
    return this.isThere && this.run?.hasSteps === true;
  }

  get store() {
    const { touched } = this.cluster.state;
    return { step: this.step, selected: this.selected, touched, block: null };
  }

  select(its: number | null, run: Run | undefined = this.run) {
    const id = run?.requests.get(Number(its));
    if (id !== undefined) this.cluster.select(id);
  }

  lookAt() {}
}
